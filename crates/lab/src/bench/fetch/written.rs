//! The stream that is read: several batches per object as producers write them, or one batch over several
//! objects; slices of one size, or of three.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, StreamId};
use batchweave_core::keys;
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::{Dtype, Identity, Layout, ObjectPart, TgbData, pack};
use batchweave_log::{Log, LogOptions};
use batchweave_store::Store;
use bytes::Bytes;

use crate::bench::single_commits::SingleCommits;
use crate::error::bench_error;
use batchweave_console::CliError;

/// Size of an object: the producers' default, or one batch if that is larger.
const OBJECT_BYTES: u64 = 64 << 20;
/// Largest number of batches per object: they are committed together, and log entries are limited.
const ENTRY_TGBS: u64 = 128;
/// Bytes of a row: its tokens and one more, two bytes each.
const WIDTH: u32 = 2048;
/// Number of slice sizes; each has one row less than the one before.
pub(super) const SIZES: u32 = 3;
/// Size unit of slices: whole rows.
pub(super) const ROW_BYTES: u64 = WIDTH as u64 * 2;

/// The shape of the written stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of the largest slice.
    pub(super) slice_bytes: u64,
    pub(super) slices: u32,
    pub(super) steps: u64,
    /// Number of objects that hold a batch; 1: several batches share one.
    pub(super) objects: u32,
    /// Whether neighbouring slices differ in size.
    pub(super) uneven: bool,
}

impl Shape {
    /// Returns the rows of a slice.
    fn rows(self, slice: u32) -> u64 {
        let rows = self.slice_bytes / ROW_BYTES;
        if self.uneven {
            rows - u64::from(slice % SIZES)
        } else {
            rows
        }
    }

    /// Returns the payload bytes of the first `slices` slices of a step.
    pub(super) fn bytes(self, slices: u32) -> u64 {
        (0..slices).map(|slice| self.rows(slice) * ROW_BYTES).sum()
    }

    /// Returns the bytes of an object, frame headers included.
    fn object_bytes(self) -> u64 {
        if self.objects == 1 {
            return OBJECT_BYTES + OBJECT_BYTES / 16;
        }
        let together = u64::from(self.slices.div_ceil(self.objects));
        // The frame's header and the payload's.
        together * (self.slice_bytes + 1024)
    }

    fn payloads(self) -> Result<Vec<Bytes>, CliError> {
        let payload = |size: u32| {
            let rows = self.rows(size);
            let layout = Layout::tokens(Dtype::U16, rows, WIDTH.into()).map_err(bench_error)?;
            let tokens: Vec<u32> = (0..rows as u32 * WIDTH)
                .map(|n| n.wrapping_mul(40_503) >> 16)
                .collect();
            layout
                .encode_tokens(&tokens)
                .map(Bytes::from)
                .map_err(bench_error)
        };
        (0..SIZES.min(self.slices)).map(payload).collect()
    }
}

/// Writes the batches. Returns how many objects hold each batch, and how many of these hold any of the
/// first `own` slices.
pub(super) async fn write(
    store: &Arc<dyn Store>,
    shape: Shape,
    own: u32,
) -> Result<(u64, u64), CliError> {
    let config = stream(shape.slices, (shape.slice_bytes / ROW_BYTES) as u32);
    let _ = batchweave_log::create(store, &config).await?;
    let log = Log::open(Arc::clone(store), &LogOptions::new([1; 32])).await?;
    let mut producer = SingleCommits::open(log, "bench").await?;
    let payloads = shape.payloads()?;
    let group = if shape.objects == 1 {
        (OBJECT_BYTES / shape.bytes(shape.slices)).clamp(1, ENTRY_TGBS)
    } else {
        1
    };
    let (mut left, mut objects) = (shape.steps, (0, 0));
    while left > 0 {
        let count = group.min(left);
        let parts = commit(store, &mut producer, &config, &payloads, shape, count).await?;
        let read = parts.iter().filter(|part| part.first_slice < own);
        objects = (parts.len() as u64, read.count() as u64);
        left -= count;
    }
    Ok(objects)
}

fn stream(slices: u32, rows_per_slice: u32) -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([0xfe; 16]),
        slices,
        order: StreamOrder::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "none".to_owned(),
            fingerprint: Hash::sha256(b"none"),
        },
        seq_len: WIDTH - 1,
        rows_per_slice,
        created: "2026-11-21T00:00:00Z".to_owned(),
        form: None,
        parent: None,
    }
}

async fn commit(
    store: &Arc<dyn Store>,
    producer: &mut SingleCommits,
    config: &StreamConfig,
    payloads: &[Bytes],
    shape: Shape,
    count: u64,
) -> Result<Vec<ObjectPart>, CliError> {
    let first = producer.next_seq();
    let rows = u64::from(config.rows_per_slice * config.slices);
    let slices: Vec<Bytes> = (0..config.slices as usize)
        .map(|slice| payloads[slice % payloads.len()].clone())
        .collect();
    let tgb = |seq| TgbData {
        seq,
        rows,
        tokens: rows * u64::from(config.seq_len),
        provenance: None,
        slices: slices.clone(),
    };
    let tgbs: Vec<_> = (first..first + count).map(tgb).collect();
    let identity = Identity::new(config.stream_id, producer.name(), producer.epoch());
    let (name, epoch, nonce) = (producer.name(), producer.epoch(), producer.nonce());
    let key = |part| keys::data(name, epoch, nonce, (first, first + count - 1), first, part);
    // Leaves space for frame headers, so that whole batches fill an object.
    let packed = pack(identity, &tgbs, shape.object_bytes(), key).map_err(bench_error)?;
    for object in packed.objects {
        let _ = store.upload(&object.key, object.bytes).await?;
    }
    let cursor = Cursor(serde_json::json!({ "row": first + count }));
    let parts = packed.tgbs.first().map(|tgb| tgb.parts.clone());
    producer.commit(packed.tgbs, cursor).await?;
    Ok(parts.unwrap_or_default())
}
