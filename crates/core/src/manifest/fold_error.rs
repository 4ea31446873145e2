//! Errors that stop the fold. They stop readers and writers alike: a process that went past the record
//! could disagree with one that can read it.

use crate::error::FormatError;
use crate::ids::{Hash, Version};
use crate::keys;

/// An error that stops the fold.
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
        /// The fault in its bytes.
        reason: FormatError,
    },
    /// A record of this stream that names another hash for the record before it. No correct writer makes
    /// one, so readers can't know which of the two is right.
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
    /// A record whose writer folded the records before it to another state than this fold.
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
    /// A bug: the state broke an invariant. It must not be used for reads or writes.
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
    /// Returns the version at which the fold stops.
    pub fn version(&self) -> Version {
        match self {
            Self::Unreadable { version, .. }
            | Self::Unlinked { version, .. }
            | Self::OtherView { version, .. }
            | Self::Invariant { version, .. }
            | Self::VersionsUsedUp(version) => *version,
        }
    }

    /// Returns the record's writer, where the record can be read.
    pub fn writer(&self) -> Option<&str> {
        match self {
            Self::Unlinked { writer, .. } | Self::OtherView { writer, .. } => Some(writer),
            _ => None,
        }
    }

    /// Returns whether the record is at fault, so that a person's repair may make it void.
    pub fn may_be_repaired(&self) -> bool {
        matches!(
            self,
            Self::Unreadable { .. } | Self::Unlinked { .. } | Self::OtherView { .. }
        )
    }
}

/// Returns the key of the object that the record continues.
fn before(version: Version) -> String {
    let before = version.checked_sub(1);
    before.map_or(keys::STREAM.to_owned(), keys::log)
}
