//! The evidence of a run, on which the checks work, and the violations that they report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{AttemptId, Epoch, JobName, ProducerName, Seq, Step, Version};
use batchweave_core::stream::StreamConfig;
use batchweave_core::tgb::Digest;
use bytes::Bytes;

use crate::plan::Plan;
use crate::store::Landed;
use crate::trace::Event;

/// One step as a reader saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub producer: ProducerName,
    pub seq: Seq,
    /// The epoch in which it was committed.
    pub epoch: Epoch,
    /// The record that committed it.
    pub version: Version,
    pub digest: Digest,
    /// The version up to which the reader had folded.
    pub head: Version,
}

/// The evidence of a run.
#[derive(Debug)]
pub struct Evidence {
    pub plan: Plan,
    pub stream: StreamConfig,
    /// The bytes of `stream.json`.
    pub stream_json: Bytes,
    /// The objects in the store at the end.
    pub objects: BTreeMap<Arc<str>, Bytes>,
    /// All objects that were ever created, in order.
    pub landed: Vec<Landed>,
    /// All events of the run.
    pub events: Vec<Event>,
    /// The names of the actors; actor n has the name n - 1.
    pub actors: Vec<String>,
    /// The steps that each reader saw.
    pub reads: Vec<Vec<Read>>,
    /// The sequence number up to which each producer's process had its commits confirmed.
    pub acknowledged: BTreeMap<u32, Seq>,
    /// Sessions of ranks with their daemons, in order.
    pub sessions: Vec<Session>,
    /// The steps that ranks received, in order.
    pub received: Vec<Received>,
    /// The marks whose storage was confirmed to the rank.
    pub marked: Vec<Marked>,
    /// Violations that the actors found themselves.
    pub found: Vec<Violation>,
    /// The fingerprint of the run.
    pub hash: u64,
    /// The number of requests.
    pub requests: u64,
    /// The virtual duration of the run.
    pub lasted: Duration,
}

impl Evidence {
    /// Returns the name of an actor.
    pub fn actor(&self, id: u32) -> &str {
        let index = id.checked_sub(1).map(|i| i as usize);
        let name = index.and_then(|i| self.actors.get(i));
        name.map_or("no single actor", String::as_str)
    }
}

/// A session of a rank, from its acceptance by the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The job that the trainer belongs to.
    pub job: JobName,
    pub attempt: AttemptId,
    pub coordinate: u32,
    /// The run of the daemon.
    pub instance: String,
    /// The step at which the rank continues.
    pub next_step: Step,
    /// The time of the acceptance.
    pub at: Duration,
}

/// One step as a rank received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The session, as an index into all sessions.
    pub session: usize,
    /// The job that the trainer belongs to.
    pub job: JobName,
    pub attempt: AttemptId,
    pub coordinate: u32,
    pub step: Step,
    /// CRC32C of each slice's data in shared memory.
    pub sums: Vec<u32>,
    pub at: Duration,
}

/// A mark whose storage the daemon confirmed to its rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The job that the trainer belongs to.
    pub job: JobName,
    pub attempt: AttemptId,
    pub coordinate: u32,
    /// The step at which the checkpoint restarts.
    pub step: Step,
    pub at: Duration,
}

/// A rule that the run broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check that found it.
    pub check: &'static str,
    /// The actor that broke the rule; 0 if no single one did.
    pub actor: u32,
    /// The version of the log that is concerned.
    pub version: Option<Version>,
    /// The time, if known.
    pub at: Option<Duration>,
    /// The violation in words.
    pub text: String,
}

impl Violation {
    pub(crate) fn new(
        check: &'static str,
        version: Option<Version>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            check,
            actor: 0,
            version,
            at: None,
            text: text.into(),
        }
    }

    /// Returns the violation with its actor and time.
    pub(crate) fn by(mut self, actor: u32, at: Duration) -> Self {
        self.actor = actor;
        self.at = Some(at);
        self
    }
}
