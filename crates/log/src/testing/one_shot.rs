//! Commits of a test, one record per call, without a commit task and its policy.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Step, Version};
use batchweave_core::manifest::entry::{BatchEntry, Finished};
use batchweave_core::manifest::{Entry, Void, Writer};
use batchweave_core::tgb::TgbRecord;

use crate::{Append, Committer, Log, LogError};

/// The outcome of one try to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) enum Commit {
    Committed {
        version: Version,
        next_step: Step,
    },
    /// Another record is at the version: validate and try again.
    Lost,
    Fenced {
        by: Epoch,
        instance: String,
    },
    Sealed,
}

impl Committer {
    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// One try to commit `tgbs`, whose objects are stored, with the cursor that follows them. When the future
    /// is dropped, the next try first resolves this one and returns `Lost`.
    pub(crate) async fn try_commit(
        &mut self,
        tgbs: Vec<TgbRecord>,
        cursor: Cursor,
    ) -> Result<Commit, LogError> {
        let first_seq = self.next_seq();
        let entry = BatchEntry {
            producer: self.name().clone(),
            epoch: self.epoch(),
            first_seq,
            last_seq: (first_seq + tgbs.len() as u64).saturating_sub(1),
            cursor_before: self.cursor().hash(),
            cursor,
            mixture: self.log.manifest().mixture_at(self.name(), first_seq),
            stage: self.log.manifest().stage_at(self.name(), first_seq),
            first_step: None,
            tgbs,
        };
        self.try_entry(Entry::Batch(entry)).await
    }

    /// One try to commit the end of the producer.
    pub(crate) async fn try_finish(&mut self) -> Result<Commit, LogError> {
        let final_seq = self.next_seq();
        let entry = Finished {
            producer: self.name().clone(),
            epoch: self.epoch(),
            final_seq,
        };
        self.try_entry(Entry::Finished(entry)).await
    }

    async fn try_entry(&mut self, entry: Entry) -> Result<Commit, LogError> {
        if let Err(void) = self.log.manifest().validate(&entry) {
            return self.refused(void);
        }
        let writer = Writer {
            name: self.name().to_string(),
            epoch: self.epoch(),
        };
        match self.log.append(&writer, vec![entry]).await? {
            Append::Won { version, .. } => {
                let next_step = self.log.manifest().next_step();
                Ok(Commit::Committed { version, next_step })
            }
            Append::Lost { .. } => {
                // A writer that lost one version is likely behind by several.
                self.log.catch_up().await?;
                Ok(Commit::Lost)
            }
        }
    }

    /// Fenced and sealed are outcomes; any other reason is a bug or damage.
    fn refused(&self, void: Void) -> Result<Commit, LogError> {
        match void {
            Void::WrongEpoch { current, .. } if current > self.epoch() => {
                let state = self.log.manifest().producer(self.name());
                let instance = state.map(|p| p.instance.clone()).unwrap_or_default();
                Ok(Commit::Fenced {
                    by: current,
                    instance,
                })
            }
            Void::Retired { epoch, .. } => Ok(Commit::Fenced {
                by: epoch,
                instance: "retired by a person".to_owned(),
            }),
            Void::Sealed => Ok(Commit::Sealed),
            other => Err(LogError::Void(other)),
        }
    }
}
