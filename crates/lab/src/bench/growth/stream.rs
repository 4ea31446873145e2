//! The stream that grows commit by commit: two producers whose TGBs have several parts, like large batches.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_core::ids::Version;
use batchweave_core::tgb::TgbRecord;
use batchweave_store::Store;
use bytes::Bytes;

use crate::bench::stream::{SingleCommits, config, payload};
use crate::error::bench_error;

/// Slices per TGB; each is a part of its own, so that a batch has that many objects.
const SLICES: u32 = 4;
const ROWS: u32 = 4;
const SEQ_LEN: u32 = 128;
/// Consecutive commits of one producer.
const TURN: u64 = 8;

/// A producer and the common parts of its TGBs.
struct Writer {
    producer: SingleCommits,
    slices: Vec<Bytes>,
    record: TgbRecord,
}

impl Writer {
    async fn open(store: &Arc<dyn Store>, name: &str, seed: u8) -> Result<Self, CliError> {
        let producer =
            SingleCommits::open(store, config(SLICES, ROWS, SEQ_LEN), name, seed).await?;
        let slices = vec![payload(ROWS, SEQ_LEN + 1)?; SLICES as usize];
        let mut packed = producer.pack((0, 0), &slices, 1)?;
        let record = packed.tgbs.pop();
        Ok(Self {
            producer,
            slices,
            record: record.ok_or_else(|| bench_error("nothing was packed"))?,
        })
    }

    /// Makes one commit as the daemon does; `with_data` uploads the TGB first.
    async fn commit(&mut self, store: &Arc<dyn Store>, with_data: bool) -> Result<(), CliError> {
        let seq = self.producer.next_seq();
        if with_data {
            for object in self.producer.pack((seq, seq), &self.slices, 1)?.objects {
                let _ = store.upload(&object.key, object.bytes).await?;
            }
        }
        // The record of the first one with other keys, since all have the same shape.
        let mut record = self.record.clone();
        for (part, n) in record.parts.iter_mut().zip(0..) {
            part.key = self.producer.key((seq, seq), n);
        }
        self.producer.commit(vec![record]).await
    }
}

/// A stream that grows.
pub(super) struct Growing {
    store: Arc<dyn Store>,
    writers: [Writer; 2],
    version: Version,
}

impl Growing {
    pub(super) async fn new(store: &Arc<dyn Store>) -> Result<Self, CliError> {
        let _ = batchweave_log::create(store, &config(SLICES, ROWS, SEQ_LEN)).await?;
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
    pub(super) async fn settle(&mut self) {
        for writer in &mut self.writers {
            writer.producer.log_mut().settle_snapshots().await;
        }
    }
}
