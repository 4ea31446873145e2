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
    /// Whose TGB.
    pub producer: ProducerName,
    /// Which.
    pub seq: Seq,
    /// Committed in which epoch.
    pub epoch: Epoch,
    /// By which record.
    pub version: Version,
    /// What is in it.
    pub digest: Digest,
    /// How far the reader had folded.
    pub head: Version,
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Evidence {
    /// What was to happen.
    pub plan: Plan,
    /// The stream.
    pub stream: StreamConfig,
    /// Its bytes.
    pub stream_json: Bytes,
    /// The store at the end.
    pub objects: BTreeMap<Arc<str>, Bytes>,
    /// All objects that ever were, in order.
    pub landed: Vec<Landed>,
    /// All that happened.
    pub events: Vec<Event>,
    /// Names of the actors; actor n is name n - 1.
    pub actors: Vec<String>,
    /// What each reader saw.
    pub reads: Vec<Vec<Read>>,
    /// The next sequence that each producer's process was told of, by number of the producer.
    pub acknowledged: BTreeMap<u32, Seq>,
    /// Sessions of ranks with their daemons, in order.
    pub sessions: Vec<Session>,
    /// What each rank received, in its order.
    pub received: Vec<Received>,
    /// Marks of which ranks were told that they are stored.
    pub marked: Vec<Marked>,
    /// What the actors found themselves.
    pub found: Vec<Violation>,
    /// Fingerprint of the run.
    pub hash: u64,
    /// Requests made.
    pub requests: u64,
    /// The time it took, virtually.
    pub lasted: Duration,
}

impl Evidence {
    /// The name of an actor, for people.
    pub fn actor(&self, id: u32) -> &str {
        let index = id.checked_sub(1).map(|i| i as usize);
        let name = index.and_then(|i| self.actors.get(i));
        name.map_or("nobody in particular", String::as_str)
    }
}

/// A session of a rank, once its daemon has let it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The job that the trainer belongs to.
    pub job: JobName,
    /// In which attempt.
    pub attempt: AttemptId,
    /// The data coordinate.
    pub coordinate: u32,
    /// The daemon's run.
    pub instance: String,
    /// The step from which the rank goes on.
    pub next_step: Step,
    /// When it was let in.
    pub at: Duration,
}

/// One step as a rank received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The session, by its place among all.
    pub session: usize,
    /// The job that the trainer belongs to.
    pub job: JobName,
    /// In which attempt.
    pub attempt: AttemptId,
    /// The data coordinate.
    pub coordinate: u32,
    /// The step.
    pub step: Step,
    /// CRC32C of each slice's data, as it stood in shared memory.
    pub sums: Vec<u32>,
    /// When.
    pub at: Duration,
}

/// A rank was told that its mark is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The job that the trainer belongs to.
    pub job: JobName,
    /// In which attempt.
    pub attempt: AttemptId,
    /// The data coordinate.
    pub coordinate: u32,
    /// The step at which the checkpoint restarts.
    pub step: Step,
    /// When.
    pub at: Duration,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which check found it.
    pub check: &'static str,
    /// Who did it; 0: nobody in particular.
    pub actor: u32,
    /// At which version.
    pub version: Option<Version>,
    /// When, if known.
    pub at: Option<Duration>,
    /// In words.
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

    /// The same, done by an actor at a time.
    pub(crate) fn by(mut self, actor: u32, at: Duration) -> Self {
        self.actor = actor;
        self.at = Some(at);
        self
    }
}
