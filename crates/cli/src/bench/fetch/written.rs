//! The stream that is read: batches of equal slices, several in an object as producers have them.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, StreamId};
use batchweave_core::keys;
use batchweave_core::stream::{Order, StreamConfig, TokenizerId};
use batchweave_core::tgb::{Dtype, Identity, Layout, TgbData, pack};
use batchweave_log::{Commit, Log, LogOptions, Producer, ProducerOpening};
use batchweave_store::Store;
use bytes::Bytes;

use crate::error::CliError;

/// As producers have it by default, or one batch where that is larger.
const OBJECT_BYTES: u64 = 64 << 20;
/// Batches of an object at most: they are committed together, and an entry of the log has a limit.
const ENTRY_TGBS: u64 = 128;
/// Tokens of a row and one more, of two bytes each.
const WIDTH: u32 = 2048;
/// Slices are whole rows.
pub(super) const ROW_BYTES: u64 = WIDTH as u64 * 2;

fn wrong(what: impl std::fmt::Display) -> CliError {
    CliError::Bench(what.to_string())
}

/// Writes `steps` batches of `slices` slices of `slice_bytes` each.
pub(super) async fn write(
    store: &Arc<dyn Store>,
    (slice_bytes, slices, steps): (u64, u32, u64),
) -> Result<(), CliError> {
    let rows = slice_bytes / ROW_BYTES;
    let config = stream(slices, rows as u32);
    let _ = batchweave_log::create(store, &config).await?;
    let log = Log::open(Arc::clone(store), &LogOptions::new([1; 32])).await?;
    let name = "bench".parse().map_err(wrong)?;
    let ProducerOpening::Opened(mut producer) = Producer::open(log, name, "bench:1").await? else {
        return Err(wrong("a new producer could not be opened"));
    };
    let layout = Layout::tokens(Dtype::U16, rows, WIDTH.into()).map_err(wrong)?;
    let tokens: Vec<u32> = (0..rows as u32 * WIDTH)
        .map(|n| n.wrapping_mul(40_503) >> 16)
        .collect();
    let payload: Bytes = layout.encode_tokens(&tokens).map_err(wrong)?.into();
    drop(tokens);
    let group = (OBJECT_BYTES / (slice_bytes * u64::from(slices))).clamp(1, ENTRY_TGBS);
    let mut left = steps;
    while left > 0 {
        let count = group.min(left);
        commit(store, &mut producer, &config, &payload, count).await?;
        left -= count;
    }
    Ok(())
}

fn stream(slices: u32, rows_per_slice: u32) -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([0xfe; 16]),
        slices,
        order: Order::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "none".to_owned(),
            fingerprint: Hash::of(b"none"),
        },
        seq_len: WIDTH - 1,
        rows_per_slice,
        created: "2026-11-21T00:00:00Z".to_owned(),
    }
}

async fn commit(
    store: &Arc<dyn Store>,
    producer: &mut Producer,
    config: &StreamConfig,
    payload: &Bytes,
    count: u64,
) -> Result<(), CliError> {
    let first = producer.next_seq();
    let rows = u64::from(config.rows_per_slice * config.slices);
    let tgb = |seq| TgbData {
        seq,
        rows,
        tokens: rows * u64::from(config.seq_len),
        provenance: None,
        slices: vec![payload.clone(); config.slices as usize],
    };
    let tgbs: Vec<_> = (first..first + count).map(tgb).collect();
    let identity = Identity::new(config.stream_id, producer.name(), producer.epoch());
    let (name, epoch, nonce) = (producer.name(), producer.epoch(), producer.nonce());
    let key = |part| keys::data(name, epoch, nonce, (first, first + count - 1), first, part);
    // Room for the frames' headers, so that whole batches fill an object.
    let packed = pack(identity, &tgbs, OBJECT_BYTES + OBJECT_BYTES / 16, key).map_err(wrong)?;
    for object in packed.objects {
        let _ = store.upload(&object.key, object.bytes).await?;
    }
    let cursor = Cursor(serde_json::json!({ "row": first + count }));
    match producer.try_commit(packed.tgbs, cursor).await? {
        Commit::Committed { .. } => Ok(()),
        other => Err(wrong(format!("{other:?} where nobody races"))),
    }
}
