//! Errors of stored objects: each names the object's key and the broken rule.

use crate::ids::StreamId;

/// A stored JSON object that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Larger than the format allows.
    #[error("{key}: {bytes} bytes, more than the {limit} that the format allows")]
    TooLarge {
        key: String,
        bytes: usize,
        limit: usize,
    },
    /// A format number that this build does not support.
    #[error(
        "{key}: format {found} is not known to this build (it reads format {}): upgrade BatchWeave",
        if *newest == 1 { "1".to_owned() } else { format!("1 to {newest}") }
    )]
    UnknownFormat {
        key: String,
        found: u64,
        /// The newest that this build reads.
        newest: u64,
    },
    /// Not the JSON that the format describes.
    #[error("{key}: not readable: {detail}")]
    Malformed {
        key: String,
        /// The parser's message, with line and column.
        detail: String,
    },
    /// The digest does not match the bytes.
    #[error(
        "{key}: damaged: it does not end in the digest of its own bytes (a byte is wrong, missing or \
         added)"
    )]
    Damaged { key: String },
    /// Whole JSON without a digest, as programs wrote it before formats had one.
    #[error(
        "{key}: has no digest: a program from before stored objects had digests wrote it; make a new stream, or read \
         this one with that program"
    )]
    NoDigest { key: String },
    /// Well-formed, but a rule of the format is broken.
    #[error("{key}: {reason}")]
    Rule { key: String, reason: String },
}

impl FormatError {
    /// Returns the error of a broken rule at `key`.
    pub fn rule(key: &str, reason: impl Into<String>) -> Self {
        Self::Rule {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    /// Checks that an object with this content has the right one of the known formats.
    pub(crate) fn check_format(key: &str, found: u32, expected: u32) -> Result<(), Self> {
        if found == expected {
            return Ok(());
        }
        Err(Self::rule(
            key,
            format!("has format {found}, and its content is that of format {expected}"),
        ))
    }

    /// Checks that the object at `key` belongs to the stream `expected`.
    pub fn check_stream(key: &str, found: StreamId, expected: StreamId) -> Result<(), Self> {
        if found == expected {
            return Ok(());
        }
        Err(Self::rule(key, format!("belongs to stream {found}")))
    }
}
