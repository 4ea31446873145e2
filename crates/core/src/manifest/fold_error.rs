//! Why the log can't be folded further. Such an error stops readers and writers alike: a process that
//! went past the record could disagree with one that can read it.

use crate::error::FormatError;
use crate::ids::{Hash, Version};
use crate::keys;

/// The log can't be folded further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The record's bytes are not a record. A repair object can void it while it is the head.
    #[error(
        "the log stops at version {version} for readers and writers: {reason}; restore the object \
         from a backup or bucket version; `batchweave repair` says whether it may be made void instead"
    )]
    Unreadable {
        /// The version that can't be read.
        version: Version,
        key: String,
        /// What is wrong with its bytes.
        reason: FormatError,
    },
    /// A record of this stream that names another hash for the record before it. No correct writer
    /// makes one, so nobody may guess which of the two is right.
    #[error(
        "the log stops at version {version} for readers and writers: {} (by {writer}) continues \
         another object than {} (it names hash {named}, the object has {held}); one of the two was \
         altered after it was written: restore it from a backup or bucket version, and see \
         `batchweave repair`",
        keys::log(*version),
        before(*version)
    )]
    Unlinked {
        /// The version of the record.
        version: Version,
        /// The hash that the record names.
        named: Hash,
        /// The hash of the object before it.
        held: Hash,
        writer: String,
    },
    /// A record whose writer made something else of the records before it than this fold.
    #[error(
        "the log stops at version {version} for readers and writers: {}, by {writer}, was written \
         by a program that understood the records before it otherwise than this one (its view of them \
         is {:.12}, ours {:.12}); one of the two is faulty or of another version: compare their \
         versions, and see `batchweave repair`",
        keys::log(*version),
        theirs.to_string(),
        ours.to_string()
    )]
    OtherView {
        /// The version of the record.
        version: Version,
        writer: String,
        theirs: Hash,
        /// The view of this fold.
        ours: Hash,
    },
    /// A bug: the state broke an invariant. Nothing may be read or written from it.
    #[error("after version {version} an invariant is broken (a bug; please report it): {broken}")]
    Invariant {
        /// The version that was folded.
        version: Version,
        broken: String,
    },
    /// The version numbers are used up.
    #[error("version {0} is near the numeric limit: this stream can take no more commits")]
    VersionsUsedUp(Version),
}

impl FoldError {
    /// The version at which the fold stops.
    pub fn version(&self) -> Version {
        match self {
            Self::Unreadable { version, .. }
            | Self::Unlinked { version, .. }
            | Self::OtherView { version, .. }
            | Self::Invariant { version, .. }
            | Self::VersionsUsedUp(version) => *version,
        }
    }

    /// The record's writer, where the record can be read.
    pub fn writer(&self) -> Option<&str> {
        match self {
            Self::Unlinked { writer, .. } | Self::OtherView { writer, .. } => Some(writer),
            _ => None,
        }
    }

    /// Whether it is the record that does not fit, so that a person's repair may make it void.
    pub fn may_be_repaired(&self) -> bool {
        matches!(
            self,
            Self::Unreadable { .. } | Self::Unlinked { .. } | Self::OtherView { .. }
        )
    }
}

/// The key of the object that a record continues.
fn before(version: Version) -> String {
    let before = version.checked_sub(1);
    before.map_or(keys::STREAM.to_owned(), keys::log)
}
