//! Producers of measured streams, which commit one record per call, without a commit task and its policy.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Hash, Nonce, ProducerName, Seq, StreamId};
use batchweave_core::keys;
use batchweave_core::manifest::entry::BatchEntry;
use batchweave_core::manifest::{Entry, Writer};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::{Dtype, Identity, Layout, Packed, TgbData, TgbRecord, pack};
use batchweave_log::{Append, Committer, Log, LogOptions, OpenOutcome};
use batchweave_store::Store;
use bytes::Bytes;

use crate::error::bench_error;

/// Returns the configuration of a stream of batches with this shape.
pub(super) fn config(slices: u32, rows_per_slice: u32, seq_len: u32) -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([0xb5; 16]),
        slices,
        order: StreamOrder::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "none".to_owned(),
            fingerprint: Hash::sha256(b"none"),
        },
        seq_len,
        rows_per_slice,
        created: "2026-11-21T00:00:00Z".to_owned(),
        form: None,
        parent: None,
    }
}

/// Returns the payload of a slice of `rows` rows of `width` tokens, two bytes each.
pub(super) fn payload(rows: u32, width: u32) -> Result<Bytes, CliError> {
    let layout = Layout::tokens(Dtype::U16, rows.into(), width.into()).map_err(bench_error)?;
    let tokens: Vec<u32> = (0..rows * width)
        .map(|n| n.wrapping_mul(40_503) >> 16)
        .collect();
    let encoded = layout.encode_tokens(&tokens);
    encoded.map(Bytes::from).map_err(bench_error)
}

/// An open producer of a benchmark.
pub(super) struct SingleCommits {
    log: Log,
    config: StreamConfig,
    name: ProducerName,
    epoch: Epoch,
    nonce: Nonce,
}

impl SingleCommits {
    /// Opens a new producer of this stream; `seed` distinguishes it from others.
    pub(super) async fn open(
        store: &Arc<dyn Store>,
        config: StreamConfig,
        name: &str,
        seed: u8,
    ) -> Result<Self, CliError> {
        let log = Log::open(Arc::clone(store), &LogOptions::new([seed; 32])).await?;
        let name: ProducerName = name.parse().map_err(bench_error)?;
        let opened = Committer::open(log, name.clone(), "bench:1").await?;
        let OpenOutcome::Opened(committer) = opened else {
            return Err(bench_error("a new producer could not be opened"));
        };
        let (epoch, nonce) = (committer.epoch(), committer.nonce());
        Ok(Self {
            log: committer.into_log(),
            config,
            name,
            epoch,
            nonce,
        })
    }

    pub(super) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Returns the sequence number of the next TGB.
    pub(super) fn next_seq(&self) -> Seq {
        let state = self.log.manifest().producer(&self.name);
        state.map_or(0, |p| p.next_seq)
    }

    /// Returns the key of one object of the TGBs `seqs`, first and last.
    pub(super) fn key(&self, seqs: (Seq, Seq), part: u32) -> String {
        keys::data(&self.name, self.epoch, self.nonce, seqs, seqs.0, part)
    }

    /// Packs TGBs with the same slices from `seqs.0` to `seqs.1` into objects of this size.
    pub(super) fn pack(
        &self,
        seqs: (Seq, Seq),
        slices: &[Bytes],
        object_bytes: u64,
    ) -> Result<Packed, CliError> {
        let config = &self.config;
        let rows = u64::from(config.rows_per_slice * config.slices);
        let tgb = |seq| TgbData {
            seq,
            rows,
            tokens: rows * u64::from(config.seq_len),
            provenance: None,
            slices: slices.to_vec(),
        };
        let tgbs: Vec<_> = (seqs.0..=seqs.1).map(tgb).collect();
        let identity = Identity::new(config.stream_id, &self.name, self.epoch);
        pack(identity, &tgbs, object_bytes, |part| self.key(seqs, part)).map_err(bench_error)
    }

    /// Commits `tgbs`, whose objects are stored, with a cursor that follows them. Tries again while the
    /// records of others are first.
    pub(super) async fn commit(&mut self, tgbs: Vec<TgbRecord>) -> Result<(), CliError> {
        let writer = Writer {
            name: self.name.to_string(),
            epoch: self.epoch,
        };
        loop {
            let (m, first_seq) = (self.log.manifest(), self.next_seq());
            let before = m.producer(&self.name).map(|p| p.cursor.clone());
            let last_seq = (first_seq + tgbs.len() as u64).saturating_sub(1);
            let entry = BatchEntry {
                producer: self.name.clone(),
                epoch: self.epoch,
                first_seq,
                last_seq,
                cursor_before: before.unwrap_or_default().hash(),
                cursor: Cursor(serde_json::json!({ "file": 12, "row": last_seq + 1 })),
                mixture: m.mixture_at(&self.name, first_seq),
                stage: 0,
                first_step: None,
                tgbs: tgbs.clone(),
            };
            match self.log.append(&writer, vec![Entry::Batch(entry)]).await? {
                Append::Won { .. } => return Ok(()),
                Append::Lost { .. } => self.log.catch_up().await?,
            }
        }
    }
}
