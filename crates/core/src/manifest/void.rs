//! Why an entry changes nothing. It depends on the state alone, so it is the same in every fold.

use crate::ids::{Epoch, JobName, ProducerName, Seq, Step, Version};

/// The reason why an entry is void.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    #[error("producer {0} was never opened")]
    NotOpened(ProducerName),
    #[error("producer {0} is not among those that stream.json names")]
    NotNamed(ProducerName),
    #[error("term {found} of producer {producer} is not the current one, {current}")]
    WrongEpoch {
        producer: ProducerName,
        current: Epoch,
        found: Epoch,
    },
    #[error("term {epoch} of producer {producer} was retired")]
    Retired {
        producer: ProducerName,
        epoch: Epoch,
    },
    #[error("producer {0} has finished")]
    Finished(ProducerName),
    #[error("the stream is sealed")]
    Sealed,
    #[error(
        "the version numbers are nearly used up: the last ones are kept for finishing and sealing; \
         go on in a new stream"
    )]
    VersionsUsedUp,
    #[error("sequence {found} of producer {producer} is not the next one, {next}")]
    WrongSeq {
        producer: ProducerName,
        next: Seq,
        found: Seq,
    },
    #[error("sequence range {first}..={last} does not fit {tgbs} TGBs")]
    SeqRange { first: Seq, last: Seq, tgbs: usize },
    #[error("the cursor before is not the current cursor of producer {0}")]
    WrongCursor(ProducerName),
    #[error("the cursor after is larger than a cursor may be")]
    CursorTooLarge,
    #[error(
        "the cursor or the weights are nested deeper than {limit} levels: no record can hold them"
    )]
    TooDeep { limit: usize },
    #[error("mixture {found} is not the one in force at sequence {seq}, {current}")]
    WrongMixture { seq: Seq, current: u64, found: u64 },
    #[error("stage {found} is not the one in force at sequence {seq}, {current}")]
    WrongStage { seq: Seq, current: u64, found: u64 },
    #[error("TGB {seq}: {reason}")]
    BadTgb { seq: Seq, reason: String },
    #[error("object {key} is not in the folder of this term and nonce")]
    ForeignObject { key: String },
    #[error("object {key} holds TGBs outside of sequence {first}..={last}")]
    SharedObject { key: String, first: Seq, last: Seq },
    #[error("the entry asserts step {asserted}, the log gives {given:?}")]
    WrongStep { asserted: Step, given: Option<Step> },
    #[error("the entry has {bytes} bytes, more than an entry may have")]
    TooLarge { bytes: usize },
    #[error("the text is longer than {limit} bytes")]
    TextTooLong { limit: usize },
    #[error("a number is larger than {limit}")]
    NumberTooLarge { limit: u64 },
    #[error("job {0} is open already")]
    JobOpen(JobName),
    #[error("job {job}@{opened} is not open")]
    JobNotOpen { job: JobName, opened: Version },
    #[error("step {step} is below the watermark {watermark}")]
    BelowWatermark { step: Step, watermark: Step },
    #[error("keep must be at least 1")]
    KeepNothing,
    #[error("the newest attempt is another one")]
    WrongPredecessor,
    #[error("the parent attempt {0} does not exist")]
    NoParent(u64),
    #[error("the checkpoint is not one of the parent stream at the step where this fork begins")]
    NotInherited,
    #[error("the mesh does not fit: {0}")]
    BadMesh(String),
    #[error("mixture {found} does not follow {current}")]
    MixtureOrder { current: u64, found: u64 },
    #[error("sequence {found} of producer {producer} is committed already (next is {next})")]
    MixtureTooLate {
        producer: ProducerName,
        next: Seq,
        found: Seq,
    },
    #[error("stage {found} does not follow {current}")]
    StageOrder { current: u64, found: u64 },
    #[error("a stream has at most {limit} stages")]
    StageCount { limit: u64 },
    #[error("seq_len and rows_per_slice of a stage must be at least 1")]
    StageShape,
    #[error("the stage names no sequence of producer {0}, which has not finished")]
    StageProducers(ProducerName),
    #[error(
        "the stage begins at sequence {found} of producer {producer}, before {next}: batches before that are committed, or \
         an earlier stage begins there"
    )]
    StageTooLate {
        producer: ProducerName,
        next: Seq,
        found: Seq,
    },
    #[error("step range {first}..={last} is empty or too large")]
    StepRange { first: Step, last: Step },
    #[error("there is no such quarantine in force")]
    NoQuarantine,
    #[error("watermark {found} does not grow beyond {current}")]
    WatermarkOrder { current: Step, found: Step },
    #[error("watermark {found} is above the head {head}")]
    WatermarkAboveHead { found: Step, head: Step },
    #[error("the watermark's list of jobs is not that of the log")]
    WatermarkJobs,
    #[error("no job holds: only a person's request moves the watermark")]
    WatermarkUnasked,
    #[error("the stream is not sealed")]
    NotSealed,
}

/// The reason why a whole record is void.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordVoid {
    #[error("it belongs to stream {0}")]
    OtherStream(crate::ids::StreamId),
    #[error("a repair says that it is void")]
    Repaired,
}
