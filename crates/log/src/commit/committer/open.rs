//! Opening a producer.

use std::time::Duration;

use batchweave_core::commit_policy::{Event, Plain, Policy};
use batchweave_core::ids::{Epoch, ProducerName, Seq};
use futures::future::BoxFuture;

use super::{Committer, Next};
use crate::commit::outcome::{Phase, Stop};
use crate::error::LogError;
use crate::log::Log;

/// Latency of a PUT to S3 Standard; only the first jitter depends on it.
const PUT_LATENCY: Duration = Duration::from_millis(30);

/// The outcome of opening a producer.
#[derive(Debug)]
pub enum OpenOutcome {
    /// The producer is open in a new epoch.
    Opened(Box<Committer>),
    /// The producer finished before; nothing is left to do.
    Finished {
        /// The number of its TGBs.
        tgbs: Seq,
    },
    /// The stream is sealed.
    Sealed,
    /// An instance that began later has opened the producer.
    Fenced {
        by: Epoch,
        /// The instance that opened the newest epoch.
        instance: String,
    },
}

impl From<Stop> for OpenOutcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fenced { by, instance } => Self::Fenced { by, instance },
            Stop::Sealed => Self::Sealed,
            Stop::Finished { tgbs } => Self::Finished { tgbs },
            Stop::Changed => unreachable!("an opening instance has no items"),
        }
    }
}

impl Committer {
    /// Opens `name` in a new epoch, which fences every older instance: each that began when the log was
    /// shorter than `log` is now. `instance` names this process to people, by host and pid.
    pub fn open(
        mut log: Log,
        name: ProducerName,
        instance: &str,
    ) -> BoxFuture<'_, Result<OpenOutcome, LogError>> {
        Box::pin(async move {
            let seed = log.random();
            let mut policy = Plain::new(Duration::ZERO, PUT_LATENCY, seed);
            Self::open_with(log, name, instance, &mut policy).await
        })
    }

    /// Opens `name` as [`Committer::open`] does, by `policy`. The records of other producers can carry
    /// the opening when the policy announces it.
    pub fn open_with<'a>(
        mut log: Log,
        name: ProducerName,
        instance: &'a str,
        policy: &'a mut dyn Policy,
    ) -> BoxFuture<'a, Result<OpenOutcome, LogError>> {
        Box::pin(async move {
            let m = log.manifest();
            if let Some(done) = m.producer(&name).filter(|p| p.finished) {
                let tgbs = done.next_seq;
                return Ok(OpenOutcome::Finished { tgbs });
            }
            if m.sealed() {
                return Ok(OpenOutcome::Sealed);
            }
            let nonce = log.new_nonce();
            let began = log.manifest.next_version();
            let phase = Phase::Opening {
                began,
                announced: None,
            };
            let mut committer = Self::new(log, name, nonce, phase, 1);
            let clock = committer.clock();
            committer.pending.open(instance, began, clock.now());
            let mut event = Event::Ready;
            while !committer.pending.is_empty() {
                event = match committer.advance(policy, event).await? {
                    Next::Event(next) => next,
                    Next::Wait(time) => {
                        clock.sleep(time.unwrap_or(PUT_LATENCY)).await;
                        Event::Timer
                    }
                    Next::Stopped(stop) => return Ok(stop.into()),
                };
            }
            let mut committer = committer.restarted(1);
            committer.first_event = Some(event);
            Ok(OpenOutcome::Opened(Box::new(committer)))
        })
    }
}
