//! Contradictions between a job's ledgers and the log.

use crate::error::FormatError;
use crate::ids::{AttemptId, AttemptNo, Step, Version};
use crate::keys;
use crate::proof::lineage::LineageError;
use crate::tgb::Digest;

/// The first fact found that an honest run can't leave behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Attempts that do not follow one another.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// A ledger whose bytes break the format.
    #[error("ledger: {0}; it was edited or damaged")]
    Ledger(FormatError),
    /// A ledger of an attempt that was never opened.
    #[error("ledger: {key} is of an attempt that the log does not have")]
    UnknownAttempt { key: String },
    /// A ledger with another attempt's id.
    #[error(
        "ledger: {key} has the attempt id {found}, the log opened this attempt as {expected}: \
             it was moved here or edited"
    )]
    OtherId {
        key: String,
        found: AttemptId,
        expected: AttemptId,
    },
    /// Slices that the coordinate does not have in this attempt's mesh.
    #[error(
        "ledger: {key} has slice {first_slice} and {slices} in all for coordinate {dp_rank}, but the \
             log opened attempt {attempt} with {dp_size} coordinates: it was moved here or edited"
    )]
    OtherMesh {
        key: String,
        attempt: AttemptNo,
        /// Its size in the log.
        dp_size: u32,
        dp_rank: u32,
        first_slice: u32,
        slices: u32,
    },
    /// States of a coordinate that the attempt does not have.
    #[error(
        "ledger: {key} has reports of coordinate {dp_rank}, but the log opened attempt {attempt} with {dp_size} \
             coordinates: it was moved here or edited"
    )]
    StrangeStates {
        key: String,
        attempt: AttemptNo,
        /// Its size in the log.
        dp_size: u32,
        dp_rank: u32,
    },
    /// The skipped steps are not the quarantined ones.
    #[error(
        "quarantine: {key} says that coordinate {dp_rank} passed over {found} of steps {from} to {to}, \
             but {expected} were quarantined when attempt {attempt} was opened"
    )]
    Skips {
        key: String,
        attempt: AttemptNo,
        dp_rank: u32,
        /// First step of the entry.
        from: Step,
        to: Step,
        /// The steps skipped by the ledger, as text.
        found: String,
        /// The steps quarantined by the log, as text.
        expected: String,
    },
    /// A step twice without a return of the rank.
    #[error(
        "doubled step: coordinate {dp_rank} of attempt {attempt} received step {step} again by {key}, \
             though it stood at step {at} and was not restarted"
    )]
    Doubled {
        /// The object with the second delivery.
        key: String,
        attempt: AttemptNo,
        dp_rank: u32,
        step: Step,
        /// The position of the rank.
        at: Step,
    },
    /// A step that does not exist.
    #[error(
        "{key} says that coordinate {dp_rank} received step {step}, which the log does not have"
    )]
    NotInLog {
        key: String,
        dp_rank: u32,
        step: Step,
    },
    /// Two entries have different checksums for one slice of one step.
    #[error(
        "step {step}: slice {slice} has the checksum {first:08x} in one ledger of attempt {attempt} and \
             {second:08x} in {key}: one of them was edited, or a rank received other bytes the second time"
    )]
    Disagree {
        /// The object with the second checksum.
        key: String,
        attempt: AttemptNo,
        step: Step,
        slice: u32,
        first: u32,
        second: u32,
    },
    /// The ranks received other bytes than the log names.
    #[error("step {step}: what the ranks of attempt {attempt} received has the digest {found}, but {} names {expected}: {}",
            keys::log(*.version), .why)]
    Digest {
        attempt: AttemptNo,
        step: Step,
        /// The commit that names the digest.
        version: Version,
        found: Digest,
        expected: Digest,
        why: Mismatch,
    },
}

/// The explanation of a wrong digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Two slices are exchanged.
    #[error("slices {0} and {1} are swapped")]
    Swapped(u32, u32),
    /// It is the batch of another step.
    #[error("it is the batch of step {0}")]
    OtherStep(Step),
    /// Checksums alone do not explain it.
    #[error("at least one slice had other bytes, or a ledger was edited")]
    OtherBytes,
}
