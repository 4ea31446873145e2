//! A producer's hold on the log: its epoch, fenced by whoever opens the name after it.

use std::time::Duration;

use batchweave_core::commit_policy::{Event, Plain, Policy};
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, Step, Version};
use batchweave_core::manifest::entry::{BatchEntry, Finished};
use batchweave_core::manifest::{Entry, Void, Writer};
use batchweave_core::tgb::TgbRecord;

use crate::commit::append::Append;
use crate::commit::committer::{Committer, Next};
use crate::commit::outcome::Stop;
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
    /// An instance that began later has opened it.
    Fenced {
        /// The newest epoch.
        by: Epoch,
        /// The instance that opened the newer epoch.
        instance: String,
    },
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
        /// The instance that opened the newer epoch.
        instance: String,
    },
    /// The stream is sealed: no more commits.
    Sealed,
}

/// Of S3 Standard; only the first jitter depends on it.
const PUT_LATENCY: Duration = Duration::from_millis(30);

/// An open producer.
#[derive(Debug)]
pub struct Producer {
    log: Log,
    name: ProducerName,
    epoch: Epoch,
    nonce: Nonce,
    writer: Writer,
    /// What the policy that opened it was not told yet, and whether it leads.
    pub(crate) untold: Option<Event>,
    leading: bool,
}

impl Producer {
    /// Opens `name` in a new epoch, fencing every older instance: one that began when the log was
    /// shorter than `log` is now. `instance` tells people which process this is (host and pid).
    pub async fn open(
        log: Log,
        name: ProducerName,
        instance: &str,
    ) -> Result<ProducerOpening, LogError> {
        let mut log = log;
        let seed = log.random();
        let mut policy = Plain::new(Duration::ZERO, PUT_LATENCY, seed);
        Self::open_with(log, name, instance, &mut policy).await
    }

    /// The same by a policy of choice: one that announces can be opened by others' records.
    pub async fn open_with(
        mut log: Log,
        name: ProducerName,
        instance: &str,
        policy: &mut dyn Policy,
    ) -> Result<ProducerOpening, LogError> {
        let m = log.manifest();
        if let Some(done) = m.producer(&name).filter(|p| p.finished) {
            let tgbs = done.next_seq;
            return Ok(ProducerOpening::Finished { tgbs });
        }
        if m.sealed() {
            return Ok(ProducerOpening::Sealed);
        }
        let nonce = log.new_nonce();
        let began = log.manifest.next_version();
        let mut committer = Committer::new(log, name, nonce, 0, 1);
        committer.wants.began = began;
        let clock = committer.clock();
        committer.wants.open(instance, clock.now());
        let mut event = Event::Ready;
        loop {
            if committer.wants.is_empty() {
                break;
            }
            match committer.advance(policy, event).await? {
                Ok(Next::Event(next)) => {
                    event = next;
                    continue;
                }
                Ok(Next::Wait(time)) => clock.sleep(time.unwrap_or(PUT_LATENCY)).await,
                Err(Stop::Finished { tgbs }) => return Ok(ProducerOpening::Finished { tgbs }),
                Err(Stop::Sealed) => return Ok(ProducerOpening::Sealed),
                Err(Stop::Fenced { by, instance }) => {
                    return Ok(ProducerOpening::Fenced { by, instance });
                }
            }
            event = Event::Timer;
        }
        let mut producer = Self::from_committer(committer);
        producer.untold = Some(event);
        Ok(ProducerOpening::Opened(Box::new(producer)))
    }

    pub(crate) fn into_committer(self, tgbs_per_entry: usize) -> Committer {
        let mut committer =
            Committer::new(self.log, self.name, self.nonce, self.epoch, tgbs_per_entry);
        committer.leading = self.leading;
        committer
    }

    pub(crate) fn from_committer(committer: Committer) -> Self {
        let writer = Writer {
            name: committer.name.to_string(),
            epoch: committer.epoch,
        };
        Self {
            log: committer.log,
            name: committer.name,
            epoch: committer.epoch,
            nonce: committer.nonce,
            writer,
            untold: None,
            leading: committer.leading,
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

    /// One try to commit `tgbs` with the cursor that follows them. The objects are durable. When the
    /// future is dropped, the next try finds out first what became of this one, and is `Lost`:
    /// `next_seq` and `cursor` then say what is committed.
    pub async fn try_commit(
        &mut self,
        tgbs: Vec<TgbRecord>,
        cursor: Cursor,
    ) -> Result<Commit, LogError> {
        let first_seq = self.next_seq();
        let entry = BatchEntry {
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
        if let Err(void) = self.log.manifest().validate(&entry) {
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
