//! What can go wrong with a log. A lost race and a fence are not errors but outcomes.

use batchweave_core::error::FormatError;
use batchweave_core::ids::Version;
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
    #[error("no stream at {root}: stream.json is missing; create it with `batchweave init`")]
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
    /// The record after a snapshot does not continue it.
    #[error(
        "{key} does not continue the record before it (its prev differs): \
         an object of the log was altered, or the root was made anew under a living writer"
    )]
    BrokenChain {
        /// The record.
        key: String,
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
