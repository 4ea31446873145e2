//! The kinds of entry. Entries of producers carry an epoch. Those of people, and of daemons that manage a
//! stream, carry a request id, so that a retried command is harmless.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cursor::Cursor;
use crate::ids::{
    AttemptId, AttemptNo, Epoch, Hash, JobName, Nonce, ProducerName, RequestId, Seq, StageName,
    Step, StreamId, Version,
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
    /// A producer has finished.
    Finished(Finished),
    /// A person ends the epoch of a producer that does not return.
    Retired(Retired),
    /// A training job begins to read the stream.
    JobOpened(JobOpened),
    /// A training job has ended.
    JobClosed(JobClosed),
    /// A job starts or restarts its ranks.
    AttemptOpened(AttemptOpened),
    /// The mixture of sources changes at given sequence numbers.
    Mixture(Mixture),
    /// Batches have another shape from given sequence numbers on.
    Stage(Stage),
    /// A range of steps is excluded from attempts opened later.
    Quarantined(Quarantined),
    /// An exclusion is lifted, for attempts opened later.
    QuarantineLifted(QuarantineLifted),
    /// The oldest step that may still be needed.
    Watermark(Watermark),
    /// The stream takes no more commits; readers end at the contiguous head.
    Sealed(Sealed),
    Unsealed(Unsealed),
}

/// The opening of a producer.
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
    /// The head of the log when this instance began. Of two instances that open the name, the one with the
    /// higher head is the newer.
    pub began: Version,
}

/// The commit of consecutive TGBs of one producer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchEntry {
    pub producer: ProducerName,
    pub epoch: Epoch,
    /// First sequence number; the length of `tgbs` gives the last.
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// Hash of the cursor that this entry continues from.
    pub cursor_before: Hash,
    /// The cursor after these TGBs.
    pub cursor: Cursor,
    /// The mixture in force at these sequence numbers; 0 before any was set.
    pub mixture: u64,
    /// The stage in force at these sequence numbers; 0 before any was set.
    #[serde(default, skip_serializing_if = "is_first")]
    pub stage: u64,
    /// The step of the first TGB by the writer; checked, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<Step>,
    /// The TGBs in order.
    pub tgbs: Vec<TgbRecord>,
}

/// The end of a producer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    pub producer: ProducerName,
    pub epoch: Epoch,
    /// The number of its TGBs: one more than its last sequence number.
    pub final_seq: Seq,
}

/// The end of an epoch by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retired {
    pub request: RequestId,
    pub producer: ProducerName,
    /// The epoch that ends.
    pub epoch: Epoch,
    pub reason: String,
}

/// The opening of a training job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOpened {
    pub request: RequestId,
    pub job: JobName,
    /// First step that the job will read.
    pub start: Step,
    /// Number of restart points that the job keeps data for.
    pub keep: u32,
    /// Whether the job keeps data from reclamation.
    pub holds: bool,
    /// Whether producers wait for the job.
    pub paces: bool,
    /// Seconds without a heartbeat after which a reclaimer may close the job; `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
}

/// The closing of a training job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobClosed {
    pub request: RequestId,
    pub job: JobName,
    /// The incarnation: the version of its open record.
    pub opened: Version,
    pub reason: String,
}

/// One axis of a training mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name of the axis, as the trainer calls it.
    pub name: String,
    pub size: u32,
}

/// The checkpoint that an attempt starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// The attempt that made the checkpoint.
    pub attempt: AttemptNo,
    pub step: Step,
}

/// The checkpoint of the parent stream that an attempt of a fork starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inherited {
    /// The parent stream, as stream.json names it.
    pub stream: StreamId,
    /// The attempt of the parent's job that made the checkpoint; its id names the job, too.
    pub attempt: AttemptNo,
    pub id: AttemptId,
    /// The first step of the fork.
    pub step: Step,
}

/// The opening of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptOpened {
    pub job: JobName,
    /// The incarnation of the job.
    pub opened: Version,
    /// Drawn by the client of global rank 0; a repeat of the same id has no effect.
    pub attempt: AttemptId,
    /// The newest attempt that the writer knew.
    pub predecessor: Option<AttemptId>,
    /// The checkpoint that the attempt starts from.
    pub parent: Option<Parent>,
    /// The checkpoint of the parent stream that it starts from, in place of `parent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Inherited>,
    pub start: Step,
    /// Data-parallel size: the number of readers of different slices.
    pub dp_size: u32,
    /// The axes, outermost first; for people.
    pub mesh: Vec<Axis>,
}

/// A change of the mixture of sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    pub request: RequestId,
    /// The id of the mixture before plus one.
    pub id: u64,
    /// The sequence number from which it is in force, for each affected producer.
    pub from: BTreeMap<ProducerName, Seq>,
    /// Weights of the sources.
    pub spec: Value,
    /// The losses and settings that a driver made the weights from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Value>,
}

/// Another shape of the batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub request: RequestId,
    /// The id of the stage before plus one.
    pub id: u64,
    /// Its name in the producers' configurations.
    pub name: StageName,
    /// The sequence number from which it is in force, for each producer that has not finished; under `lanes`
    /// also for those that were never opened.
    pub from: BTreeMap<ProducerName, Seq>,
    /// Rows or bins in a slice.
    pub rows_per_slice: u32,
    /// Tokens that a row advances by; a row stores one more.
    pub seq_len: u32,
    /// The form of slices, as in the name of the stream's tokenizer; empty for plain rows.
    pub form: String,
    /// SHA-256 over the settings of producers that decide the bytes of these batches.
    pub fingerprint: Hash,
    /// The mixture that begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<StageMixture>,
}

/// The mixture that begins with a stage, at the same sequence numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageMixture {
    /// The id of the mixture before plus one.
    pub id: u64,
    /// Weights of the sources.
    pub spec: Value,
}

/// The exclusion of a range of steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantined {
    /// The id of the command and of the quarantine.
    pub request: RequestId,
    pub first: Step,
    pub last: Step,
    pub reason: String,
}

/// The end of an exclusion.
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

/// An advance of the watermark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermark {
    /// The oldest step that may still be needed.
    pub step: Step,
    /// Every open job that holds data, sorted by name; must equal the folded state.
    pub jobs: Vec<HoldingJob>,
    /// Set when a person requested it: required when no job holds data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

/// A seal of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    pub request: RequestId,
    pub reason: String,
}

/// The removal of a seal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsealed {
    pub request: RequestId,
    pub reason: String,
}

impl Entry {
    /// Returns the producer and its epoch, for openings, batches and finishes.
    pub fn producer(&self) -> Option<(&ProducerName, Epoch)> {
        match self {
            Self::Opened(e) => Some((&e.producer, e.epoch)),
            Self::Batch(e) => Some((&e.producer, e.epoch)),
            Self::Finished(e) => Some((&e.producer, e.epoch)),
            _ => None,
        }
    }

    /// Returns the request id, for entries that have one.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Retired(e) => Some(e.request),
            Self::JobOpened(e) => Some(e.request),
            Self::JobClosed(e) => Some(e.request),
            Self::Mixture(e) => Some(e.request),
            Self::Stage(e) => Some(e.request),
            Self::Quarantined(e) => Some(e.request),
            Self::QuarantineLifted(e) => Some(e.request),
            Self::Watermark(e) => e.request,
            Self::Sealed(e) => Some(e.request),
            Self::Unsealed(e) => Some(e.request),
            Self::Opened(_) | Self::Batch(_) | Self::Finished(_) | Self::AttemptOpened(_) => None,
        }
    }

    /// Returns the kind as in the record.
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
            Self::Stage(_) => "stage",
            Self::Quarantined(_) => "quarantined",
            Self::QuarantineLifted(_) => "quarantine_lifted",
            Self::Watermark(_) => "watermark",
            Self::Sealed(_) => "sealed",
            Self::Unsealed(_) => "unsealed",
        }
    }

    /// Returns whether its record has format 2: stages and reasons of mixtures came with it.
    pub fn is_of_format_2(&self) -> bool {
        match self {
            Self::Stage(_) => true,
            Self::Batch(e) => e.stage > 0,
            Self::Mixture(e) => e.why.is_some(),
            _ => false,
        }
    }

    /// Returns the length of the compact JSON. It is counted without writing it, since entries near the
    /// bound are large.
    pub fn json_len(&self) -> usize {
        let mut count = Count(0);
        serde_json::to_writer(&mut count, self).map_or(usize::MAX, |()| count.0)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_first(stage: &u64) -> bool {
    *stage == 0
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
