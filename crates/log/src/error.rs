//! What can go wrong with a log. A lost race and a fence are not errors but outcomes.

use batchweave_core::error::FormatError;
use batchweave_core::ids::{Hash, ProducerName, Seq, StreamId, Version};
use batchweave_core::manifest::{FoldError, Void};
use batchweave_store::StoreError;

/// A log that can't be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored object breaks its format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The log can't be folded further.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// There is no stream at this root.
    #[error(
        "no stream at {root}: stream.json is missing; create it with `batchweave init`, or start a producer"
    )]
    NoStream {
        /// The store's root.
        root: String,
    },
    /// There are objects under the root, but no stream.json.
    #[error(
        "{root} holds other objects (for example {example}) but no stream.json: \
         choose an empty root for a new stream"
    )]
    RootInUse {
        /// The store's root.
        root: String,
        /// One of the objects.
        example: String,
    },
    /// The stream there is another one.
    #[error("the stream at {root} differs from this configuration:\n  {}", .differences.join("\n  "))]
    OtherStream {
        /// The store's root.
        root: String,
        /// One line each.
        differences: Vec<String>,
    },
    /// A record is missing although a later one exists.
    #[error(
        "gap in the log of {root}: {key} is missing although version {later} exists; \
         restore the object from a backup or bucket version (nothing may be committed or read past it)"
    )]
    Gap {
        /// The store's root.
        root: String,
        /// The missing record.
        key: String,
        /// A version that exists.
        later: Version,
    },
    /// A record that was read has other bytes now.
    #[error(
        "{key} was altered after it was written: it had hash {held} when it was read, and the record \
         after it does not continue what is there now; restore the object from a backup or bucket \
         version (nothing may be committed or read past it)"
    )]
    Altered {
        /// The record.
        key: String,
        /// The hash of the bytes that were folded.
        held: Hash,
    },
    /// A second fold, by reads of its own, gave another state.
    #[error(
        "this process folded the log wrongly: up to version {version} a second fold by new reads gives \
         another state (damaged memory, or a bug); nothing was published or deleted by it; start the \
         program again, and look at this machine's memory if it happens again"
    )]
    Unconfirmed {
        /// The last version that was folded.
        version: Version,
    },
    /// What this producer took for committed is not in the log.
    #[error(
        "producer {producer} took sequence numbers below {was} for committed, but the log has only those \
         below {now}; start it again: it goes on from what the log has"
    )]
    Undone {
        /// The producer.
        producer: ProducerName,
        /// Its next sequence number, as it was told.
        was: Seq,
        /// Its next sequence number by the log.
        now: Seq,
    },
    /// Another stream, or none, is where ours was.
    #[error(
        "{root} was removed or made anew while it was in use: it was stream {stream} and holds {now} \
         now; start the programs again if that is meant (what was committed since is lost with it)"
    )]
    OtherRoot {
        /// The store's root.
        root: String,
        /// The stream that we follow.
        stream: StreamId,
        /// What is there.
        now: String,
    },
    /// An index segment is not there and the log does not reach that far.
    #[error("{key} is missing and could not be rebuilt from the log")]
    NoSegment {
        /// The segment.
        key: String,
    },
    /// An entry that can't be valid, whatever is folded.
    #[error("refused by the rules of the log: {0}")]
    Void(Void),
    /// The commit task is gone.
    #[error("the commit task stopped: {0}")]
    Stopped(String),
}

impl LogError {
    /// Whether the same may work later: the store did not answer.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind.is_transient())
    }
}
