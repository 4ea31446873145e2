//! Errors of a log. A lost race and a fence are outcomes, not errors.

use batchweave_core::error::FormatError;
use batchweave_core::ids::{Hash, ProducerName, Seq, StreamId, Version};
use batchweave_core::manifest::{FoldError, Void};
use batchweave_store::StoreError;

/// A log that cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored object breaks its format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The log cannot be folded further.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// There is no stream at this root.
    #[error(
        "no stream at {root}: stream.json is missing; start a producer, which creates it, or correct the URL"
    )]
    NoStream { root: String },
    /// The stream is a fork, and the state with which it begins is missing.
    #[error(
        "the stream at {root} is a fork, and fork.json, the state with which it begins, is missing; restore the object \
         from a backup or bucket version"
    )]
    NoForkState { root: String },
    /// There are objects under the root, but no stream.json.
    #[error(
        "{root} holds other objects (for example {example}) but no stream.json: \
         choose an empty root for a new stream"
    )]
    RootInUse {
        root: String,
        /// The key of one of them.
        example: String,
    },
    /// The stream at the root has other parameters.
    #[error("the stream at {root} differs from this configuration:\n  {}", .differences.join("\n  "))]
    OtherStream {
        root: String,
        /// One line per parameter.
        differences: Vec<String>,
    },
    /// A record is missing although a later one exists.
    #[error(
        "gap in the log of {root}: {key} is missing although version {later} exists; \
         restore the object from a backup or bucket version (nothing may be committed or read past it)"
    )]
    Gap {
        root: String,
        /// The key of the missing record.
        key: String,
        /// A later version that exists.
        later: Version,
    },
    /// A record has other bytes than when it was read.
    #[error(
        "{key} was altered after it was written: it had hash {held} when it was read, and the record \
         after it does not continue what is there now; restore the object from a backup or bucket \
         version (nothing may be committed or read past it)"
    )]
    Altered {
        /// The key of the record.
        key: String,
        /// The hash of the bytes that were folded.
        held: Hash,
    },
    /// A record that a bundle gave is not in the log.
    #[error(
        "the log does not hold a record that a bundle gave: {key} {found}, it had hash {held}; restore the \
         object from a backup or bucket version; if a record was planted beyond the log's end, make that one \
         void with `batchweave repair`; if the log was set back on purpose, start this program again"
    )]
    NotInLog {
        /// The key of the record.
        key: String,
        /// The description of the object that the key has.
        found: &'static str,
        /// The hash of the record that was folded.
        held: Hash,
    },
    /// A second fold, by other reads, gave another state.
    #[error(
        "this process folded the log wrongly: up to version {version} a second fold by new reads gives \
         another state (damaged memory, or a bug); nothing was published or deleted by it; start the \
         program again, and look at this machine's memory if it happens again"
    )]
    Unconfirmed {
        /// The last version that was folded.
        version: Version,
    },
    /// The snapshot with which this process began does not have the state of the log's records.
    #[error(
        "{key}, with which this process began, has another state than the records of the log give (damaged, or \
         forged by a holder of the right to write it); {removed}; nothing was published or deleted by this \
         process; start the program again"
    )]
    WrongSnapshot {
        key: String,
        /// Whether the snapshot was deleted.
        removed: String,
    },
    /// This process began with a snapshot that is gone or replaced by now, so its cause is not known.
    #[error(
        "this process folded the log wrongly, from {key}, which is gone or another one by now: it did not have the \
         state of the log's records, or this machine's memory is damaged; nothing was published or deleted by \
         this process; start the program again, and look at the memory if it happens again"
    )]
    LostSnapshot { key: String },
    /// Items that this producer saw committed are not in the log.
    #[error(
        "producer {producer} took sequence numbers below {was} for committed, but the log has only those \
         below {now}; start it again: it goes on from what the log has"
    )]
    Undone {
        producer: ProducerName,
        /// Its next sequence number as it was seen before.
        was: Seq,
        /// Its next sequence number in the log now.
        now: Seq,
    },
    /// The root holds another stream than before, or none.
    #[error(
        "{root} was removed or made anew while it was in use: it was stream {stream} and holds {now} \
         now; start the programs again if that is meant (what was committed since is lost with it)"
    )]
    OtherRoot {
        root: String,
        /// The stream that was open.
        stream: StreamId,
        /// A description of the root's present contents.
        now: String,
    },
    /// An index segment is missing and the log does not reach that far.
    #[error("{key} is missing and could not be rebuilt from the log")]
    NoSegment {
        /// The key of the segment.
        key: String,
    },
    /// An entry is void.
    #[error("refused by the rules of the log: {0}")]
    Void(Void),
    /// The commit task panicked or was cancelled.
    #[error("the commit task stopped: {0}")]
    Stopped(String),
}

impl LogError {
    /// Whether one wrong read while the log was opened may be the reason.
    pub(crate) fn may_be_misread(&self) -> bool {
        matches!(
            self,
            Self::Format(_) | Self::Altered { .. } | Self::OtherRoot { .. }
        )
    }

    /// Whether a retry may succeed: the store failed for now.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind.is_transient())
    }
}
