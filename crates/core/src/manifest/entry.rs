//! The kinds of entry. Those of producers carry an epoch; those of people and daemons that manage
//! a stream carry a request id, so that a retried command is harmless.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cursor::Cursor;
use crate::ids::{
    AttemptId, AttemptNo, Epoch, Hash, JobName, Nonce, ProducerName, RequestId, Seq, Step, Version,
};
use crate::tgb::TgbRecord;

/// One entry of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A producer was opened: a new epoch that fences the older ones.
    Opened(Opened),
    /// TGBs become visible and their producer's cursor moves.
    Batch(BatchEntry),
    /// A producer has no more.
    Finished(Finished),
    /// A person ends the epoch of a producer that is gone.
    Retired(Retired),
    /// A training run begins to read the stream.
    JobOpened(JobOpened),
    /// A training run is over.
    JobClosed(JobClosed),
    /// A job starts or restarts its ranks.
    AttemptOpened(AttemptOpened),
    /// Another mixture of sources, from given sequence numbers on.
    Mixture(Mixture),
    /// Steps that attempts opened later pass over.
    Quarantined(Quarantined),
    /// A quarantine is lifted, for attempts opened later.
    QuarantineLifted(QuarantineLifted),
    /// The oldest step that may still be needed.
    Watermark(Watermark),
    /// No more commits; readers end at the contiguous head.
    Sealed(Sealed),
    Unsealed(Unsealed),
}

/// See [`Entry::Opened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    pub producer: ProducerName,
    /// Host and process, for people.
    pub instance: String,
    /// Drawn at random for this opening; part of its data keys.
    pub nonce: Nonce,
    /// The epoch before plus one.
    pub epoch: Epoch,
    /// The head of the log when this instance began: of two that open the name, the one that saw the
    /// longer log is the newer.
    pub began: Version,
}

/// See [`Entry::Batch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchEntry {
    pub producer: ProducerName,
    pub epoch: Epoch,
    /// First sequence number; `tgbs` gives how many.
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// Hash of the cursor that this entry goes on from.
    pub cursor_before: Hash,
    /// The cursor after it.
    pub cursor: Cursor,
    /// The mixture in force at these sequence numbers; 0 before any was set.
    pub mixture: u64,
    /// The writer's assertion of the step of the first TGB; checked, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<Step>,
    /// The TGBs in order.
    pub tgbs: Vec<TgbRecord>,
}

/// See [`Entry::Finished`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    pub producer: ProducerName,
    pub epoch: Epoch,
    /// The number of its TGBs: one more than its last sequence number.
    pub final_seq: Seq,
}

/// See [`Entry::Retired`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retired {
    pub request: RequestId,
    pub producer: ProducerName,
    /// The epoch that ends.
    pub epoch: Epoch,
    pub reason: String,
}

/// See [`Entry::JobOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOpened {
    pub request: RequestId,
    pub job: JobName,
    /// First step that it will ask for.
    pub start: Step,
    /// How many restart points it keeps data for.
    pub keep: u32,
    /// Whether it keeps data from reclamation.
    pub holds: bool,
    /// Whether it holds producers back.
    pub paces: bool,
    /// Seconds without a sign of life after which a reclaimer may close it; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
}

/// See [`Entry::JobClosed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobClosed {
    pub request: RequestId,
    pub job: JobName,
    /// Which incarnation: the version of its open record.
    pub opened: Version,
    pub reason: String,
}

/// One axis of a training mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name, as the trainer calls it.
    pub name: String,
    pub size: u32,
}

/// Where an attempt comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// The attempt whose checkpoint it loads.
    pub attempt: AttemptNo,
    pub step: Step,
}

/// See [`Entry::AttemptOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptOpened {
    pub job: JobName,
    /// Which incarnation of the job.
    pub opened: Version,
    /// Drawn by the client of global rank 0; the same again is a no-op.
    pub attempt: AttemptId,
    /// The newest attempt that its writer knew.
    pub predecessor: Option<AttemptId>,
    /// Where it comes from.
    pub parent: Option<Parent>,
    pub start: Step,
    /// Data-parallel size: readers of different slices.
    pub dp_size: u32,
    /// The axes, outermost first; information.
    pub mesh: Vec<Axis>,
}

/// See [`Entry::Mixture`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    pub request: RequestId,
    /// The mixture before plus one.
    pub id: u64,
    /// From which sequence number on, for each producer that it concerns.
    pub from: BTreeMap<ProducerName, Seq>,
    /// Weights, for the producers.
    pub spec: Value,
}

/// See [`Entry::Quarantined`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantined {
    /// The command, and the quarantine's id.
    pub request: RequestId,
    pub first: Step,
    pub last: Step,
    pub reason: String,
}

/// See [`Entry::QuarantineLifted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuarantineLifted {
    pub request: RequestId,
    /// The quarantine that is lifted.
    pub quarantine: RequestId,
}

/// One job in a watermark's list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldingJob {
    pub job: JobName,
    pub opened: Version,
    pub attempt: Option<AttemptNo>,
}

/// See [`Entry::Watermark`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermark {
    /// The oldest step that may still be needed.
    pub step: Step,
    /// Every open job that holds, sorted by name; must equal the folded state.
    pub jobs: Vec<HoldingJob>,
    /// Set when a person decided it: needed when no job holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

/// See [`Entry::Sealed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    pub request: RequestId,
    pub reason: String,
}

/// See [`Entry::Unsealed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsealed {
    pub request: RequestId,
    pub reason: String,
}

impl Entry {
    /// The producer, for entries of producers.
    pub fn producer(&self) -> Option<(&ProducerName, Epoch)> {
        match self {
            Self::Opened(e) => Some((&e.producer, e.epoch)),
            Self::Batch(e) => Some((&e.producer, e.epoch)),
            Self::Finished(e) => Some((&e.producer, e.epoch)),
            _ => None,
        }
    }

    /// The request id, for entries that have one.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Retired(e) => Some(e.request),
            Self::JobOpened(e) => Some(e.request),
            Self::JobClosed(e) => Some(e.request),
            Self::Mixture(e) => Some(e.request),
            Self::Quarantined(e) => Some(e.request),
            Self::QuarantineLifted(e) => Some(e.request),
            Self::Watermark(e) => e.request,
            Self::Sealed(e) => Some(e.request),
            Self::Unsealed(e) => Some(e.request),
            Self::Opened(_) | Self::Batch(_) | Self::Finished(_) | Self::AttemptOpened(_) => None,
        }
    }

    /// Its kind as it stands in the record.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Opened(_) => "opened",
            Self::Batch(_) => "batch",
            Self::Finished(_) => "finished",
            Self::Retired(_) => "retired",
            Self::JobOpened(_) => "job_opened",
            Self::JobClosed(_) => "job_closed",
            Self::AttemptOpened(_) => "attempt_opened",
            Self::Mixture(_) => "mixture",
            Self::Quarantined(_) => "quarantined",
            Self::QuarantineLifted(_) => "quarantine_lifted",
            Self::Watermark(_) => "watermark",
            Self::Sealed(_) => "sealed",
            Self::Unsealed(_) => "unsealed",
        }
    }

    /// Its length as compact JSON. Counted, not written: entries near the bound are large.
    pub fn json_len(&self) -> usize {
        let mut count = Count(0);
        serde_json::to_writer(&mut count, self).map_or(usize::MAX, |()| count.0)
    }
}

struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
