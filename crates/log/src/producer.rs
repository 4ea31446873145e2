//! A producer's hold on the log: its epoch, fenced by whoever opens the name after it.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, Step, Version};
use batchweave_core::manifest::entry::{Batch, Finished, Opened};
use batchweave_core::manifest::{Entry, Void, Writer};
use batchweave_core::tgb::TgbRecord;

use crate::append::Append;
use crate::{Log, LogError};

/// What opening a producer found.
#[derive(Debug)]
pub enum ProducerOpening {
    /// It is ours, in a new epoch.
    Opened(Box<Producer>),
    /// It has finished before; nothing is left to do.
    Finished {
        /// The number of its TGBs.
        tgbs: Seq,
    },
    /// The stream is sealed.
    Sealed,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Commit {
    /// It is in the log.
    Committed {
        /// In this record.
        version: Version,
        /// The head afterwards.
        next_step: Step,
    },
    /// Another record took the version; judge again and try again.
    Lost,
    /// A newer epoch exists: stop.
    Fenced {
        /// The newest epoch.
        by: Epoch,
        /// Who opened it.
        instance: String,
    },
    /// The stream is sealed: no more commits.
    Sealed,
}

/// An open producer.
#[derive(Debug)]
pub struct Producer {
    log: Log,
    name: ProducerName,
    epoch: Epoch,
    nonce: Nonce,
    writer: Writer,
}

impl Producer {
    /// Opens `name` in a new epoch, fencing every older instance. `instance` tells people which
    /// process this is (host and pid).
    pub async fn open(
        mut log: Log,
        name: ProducerName,
        instance: &str,
    ) -> Result<ProducerOpening, LogError> {
        let nonce = log.new_nonce();
        let writer = Writer {
            name: name.to_string(),
            epoch: 0,
        };
        loop {
            let m = log.manifest();
            let state = m.producer(&name);
            if let Some(done) = state.filter(|p| p.finished) {
                return Ok(ProducerOpening::Finished {
                    tgbs: done.next_seq,
                });
            }
            if m.sealed() {
                return Ok(ProducerOpening::Sealed);
            }
            let epoch = state.map_or(0, |p| p.epoch) + 1;
            let opened = Opened {
                producer: name.clone(),
                instance: instance.to_owned(),
                nonce,
                epoch,
            };
            if let Append::Won { .. } = log.append(&writer, vec![Entry::Opened(opened)]).await? {
                let writer = Writer {
                    name: name.to_string(),
                    epoch,
                };
                let opened = Self {
                    log,
                    name,
                    epoch,
                    nonce,
                    writer,
                };
                return Ok(ProducerOpening::Opened(Box::new(opened)));
            }
            log.catch_up().await?;
        }
    }

    /// The name.
    pub fn name(&self) -> &ProducerName {
        &self.name
    }

    /// The epoch of this opening.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The nonce of this opening, for data keys.
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The log, for reading.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The log, for random numbers and an orderly end.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Where the producer stands in its input.
    pub fn cursor(&self) -> Cursor {
        self.state().map(|p| p.cursor.clone()).unwrap_or_default()
    }

    /// The sequence number of the next TGB.
    pub fn next_seq(&self) -> Seq {
        self.state().map_or(0, |p| p.next_seq)
    }

    fn state(&self) -> Option<&batchweave_core::manifest::state::ProducerState> {
        self.log.manifest().producer(&self.name)
    }

    /// One try to commit `tgbs` with the cursor that follows them. The objects are durable.
    pub async fn try_commit(
        &mut self,
        tgbs: Vec<TgbRecord>,
        cursor: Cursor,
    ) -> Result<Commit, LogError> {
        let first_seq = self.next_seq();
        let entry = Batch {
            producer: self.name.clone(),
            epoch: self.epoch,
            first_seq,
            last_seq: (first_seq + tgbs.len() as u64).saturating_sub(1),
            cursor_before: self.cursor().hash(),
            cursor,
            mixture: self.log.manifest().mixture_at(&self.name, first_seq),
            first_step: None,
            tgbs,
        };
        self.try_entry(Entry::Batch(entry)).await
    }

    /// One try to say that there is no more.
    pub async fn try_finish(&mut self) -> Result<Commit, LogError> {
        let final_seq = self.next_seq();
        let entry = Finished {
            producer: self.name.clone(),
            epoch: self.epoch,
            final_seq,
        };
        self.try_entry(Entry::Finished(entry)).await
    }

    async fn try_entry(&mut self, entry: Entry) -> Result<Commit, LogError> {
        if let Err(void) = self.log.manifest().judge(&entry) {
            return self.stopped(void);
        }
        match self.log.append(&self.writer, vec![entry]).await? {
            Append::Won { version, .. } => {
                let next_step = self.log.manifest().next_step();
                Ok(Commit::Committed { version, next_step })
            }
            Append::Lost { .. } => {
                // Whoever lost one version is likely behind by several.
                self.log.catch_up().await?;
                Ok(Commit::Lost)
            }
        }
    }

    /// Fenced and sealed are outcomes; any other reason is a bug or a foreign hand.
    fn stopped(&self, void: Void) -> Result<Commit, LogError> {
        match void {
            Void::WrongEpoch { current, .. } if current > self.epoch => {
                let instance = self.state().map(|p| p.instance.clone()).unwrap_or_default();
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
