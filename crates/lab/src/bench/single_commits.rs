//! A producer of a benchmark: it commits one record per call, without a commit task and its policy.

use batchweave_console::CliError;
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq};
use batchweave_core::manifest::entry::BatchEntry;
use batchweave_core::manifest::{Entry, Writer};
use batchweave_core::tgb::TgbRecord;
use batchweave_log::{Append, Committer, Log, OpenOutcome};

use crate::error::bench_error;

/// An open producer of a benchmark.
pub(super) struct SingleCommits {
    log: Log,
    name: ProducerName,
    epoch: Epoch,
    nonce: Nonce,
}

impl SingleCommits {
    pub(super) async fn open(log: Log, name: &str) -> Result<Self, CliError> {
        let name: ProducerName = name.parse().map_err(bench_error)?;
        let opened = Committer::open(log, name.clone(), "bench:1").await?;
        let OpenOutcome::Opened(committer) = opened else {
            return Err(bench_error("a new producer could not be opened"));
        };
        let (epoch, nonce) = (committer.epoch(), committer.nonce());
        Ok(Self {
            log: committer.into_log(),
            name,
            epoch,
            nonce,
        })
    }

    pub(super) fn name(&self) -> &ProducerName {
        &self.name
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn nonce(&self) -> Nonce {
        self.nonce
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// The sequence number of the next TGB.
    pub(super) fn next_seq(&self) -> Seq {
        let state = self.log.manifest().producer(&self.name);
        state.map_or(0, |p| p.next_seq)
    }

    /// Commits `tgbs`, whose objects are stored, with the cursor that follows them. Tries again while the
    /// records of others are first.
    pub(super) async fn commit(
        &mut self,
        tgbs: Vec<TgbRecord>,
        cursor: Cursor,
    ) -> Result<(), CliError> {
        let writer = Writer {
            name: self.name.to_string(),
            epoch: self.epoch,
        };
        loop {
            let (m, first_seq) = (self.log.manifest(), self.next_seq());
            let before = m.producer(&self.name).map(|p| p.cursor.clone());
            let entry = BatchEntry {
                producer: self.name.clone(),
                epoch: self.epoch,
                first_seq,
                last_seq: (first_seq + tgbs.len() as u64).saturating_sub(1),
                cursor_before: before.unwrap_or_default().hash(),
                cursor: cursor.clone(),
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
