//! The measured stream: two producers whose TGBs have several parts, like large batches.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::{Dtype, Identity, Layout, Packed, TgbData, TgbRecord, pack};
use batchweave_log::{Log, LogError, LogOptions};
use batchweave_store::Store;
use bytes::Bytes;

use crate::bench::single_commits::SingleCommits;
use crate::error::bench_error;
use batchweave_console::CliError;

/// Slices per TGB; each is a part of its own, so that a batch has that many objects.
pub(super) const SLICES: u32 = 4;
const ROWS: u32 = 4;
const SEQ_LEN: u32 = 128;
/// Consecutive commits of one producer.
const TURN: u64 = 8;

pub(super) fn config() -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([0xb5; 16]),
        slices: SLICES,
        order: StreamOrder::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "none".to_owned(),
            fingerprint: Hash::sha256(b"none"),
        },
        seq_len: SEQ_LEN,
        rows_per_slice: ROWS,
        created: "2026-11-21T00:00:00Z".to_owned(),
        form: None,
        parent: None,
    }
}

/// A producer and the common parts of its TGBs.
struct Writer {
    producer: SingleCommits,
    payload: Bytes,
    record: TgbRecord,
}

impl Writer {
    async fn open(store: &Arc<dyn Store>, name: &str, seed: u8) -> Result<Self, CliError> {
        let log = Log::open(Arc::clone(store), &LogOptions::new([seed; 32])).await?;
        let producer = SingleCommits::open(log, name).await?;
        let layout =
            Layout::tokens(Dtype::U16, ROWS.into(), u64::from(SEQ_LEN) + 1).map_err(bench_error)?;
        let tokens = vec![7; ((SEQ_LEN + 1) * ROWS) as usize];
        let payload = layout.encode_tokens(&tokens).map_err(bench_error)?.into();
        let mut writer = Self {
            producer,
            payload,
            record: TgbRecord {
                rows: 0,
                tokens: 0,
                digest: batchweave_core::tgb::Digest([0; 32]),
                parts: Vec::new(),
                provenance: None,
                cost: None,
            },
        };
        let mut packed = writer.pack(0)?;
        writer.record = packed
            .tgbs
            .pop()
            .ok_or_else(|| bench_error("nothing was packed"))?;
        Ok(writer)
    }

    fn key(&self, seq: u64, part: u32) -> String {
        let p = &self.producer;
        keys::data(p.name(), p.epoch(), p.nonce(), (seq, seq), seq, part)
    }

    fn pack(&self, seq: u64) -> Result<Packed, CliError> {
        let p = &self.producer;
        let stream = p.log().manifest().stream_id();
        let rows = u64::from(ROWS * SLICES);
        let tgb = TgbData {
            seq,
            rows,
            tokens: rows * u64::from(SEQ_LEN),
            provenance: None,
            slices: vec![self.payload.clone(); SLICES as usize],
        };
        let identity = Identity::new(stream, p.name(), p.epoch());
        pack(identity, &[tgb], 1, |part| self.key(seq, part)).map_err(bench_error)
    }

    /// Returns the record of a TGB: that of the first with other keys, since all have the same shape.
    fn tgb(&self, seq: u64) -> TgbRecord {
        let mut record = self.record.clone();
        for (part, n) in record.parts.iter_mut().zip(0..) {
            part.key = self.key(seq, n);
        }
        record
    }

    /// Makes one commit as the daemon does; `with_data` uploads the TGB first.
    async fn commit(&mut self, store: &Arc<dyn Store>, with_data: bool) -> Result<(), CliError> {
        let seq = self.producer.next_seq();
        if with_data {
            for object in self.pack(seq)?.objects {
                let _ = store.upload(&object.runs[0].part.key, object.bytes).await?;
            }
        }
        let cursor = Cursor(serde_json::json!({ "file": 12, "row": seq + 1 }));
        let tgbs = vec![self.tgb(seq)];
        self.producer.commit(tgbs, cursor).await
    }
}

/// A stream that grows commit by commit.
pub(super) struct Growing {
    store: Arc<dyn Store>,
    writers: [Writer; 2],
    version: Version,
}

impl Growing {
    pub(super) async fn new(store: &Arc<dyn Store>) -> Result<Self, CliError> {
        let _ = batchweave_log::create(store, &config()).await?;
        let mut writers = [
            Writer::open(store, "tokenizer-00", 1).await?,
            Writer::open(store, "tokenizer-01", 2).await?,
        ];
        for writer in &mut writers {
            writer.producer.log_mut().catch_up().await?;
        }
        Ok(Self {
            store: Arc::clone(store),
            writers,
            version: 2,
        })
    }

    /// Returns the step that the record of `version` adds: the first two records open the producers.
    pub(super) fn step(version: Version) -> u64 {
        version.saturating_sub(2)
    }

    /// Commits up to `version`, exclusive; the objects of the TGBs in `with_data` are uploaded.
    pub(super) async fn grow(
        &mut self,
        version: Version,
        with_data: &[Version],
    ) -> Result<(), CliError> {
        while self.version < version {
            let turn = (self.version / TURN) as usize % self.writers.len();
            let writer = &mut self.writers[turn];
            if self.version.is_multiple_of(TURN) {
                writer.producer.log_mut().catch_up().await?;
            }
            let with_data = with_data.contains(&self.version);
            writer.commit(&self.store, with_data).await?;
            self.version += 1;
        }
        Ok(())
    }

    /// Waits until snapshots and segments are written.
    pub(super) async fn settle(&mut self) -> Result<(), LogError> {
        for writer in &mut self.writers {
            writer.producer.log_mut().settle_snapshots().await;
        }
        Ok(())
    }
}
