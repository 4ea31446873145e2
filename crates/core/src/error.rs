//! What is wrong with stored bytes: always with the object's key, never a guess.

/// A stored JSON object that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Larger than the format allows.
    #[error("{key}: {bytes} bytes, more than the {limit} that the format allows")]
    TooLarge {
        /// The object.
        key: String,
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// A format number that this build does not know.
    #[error(
        "{key}: format {found} is not known to this build (it reads format 1): upgrade BatchWeave"
    )]
    UnknownFormat {
        /// The object.
        key: String,
        /// Its format number.
        found: u64,
    },
    /// Not the JSON that the format describes.
    #[error("{key}: not readable: {detail}")]
    Malformed {
        /// The object.
        key: String,
        /// What the parser said, with line and column.
        detail: String,
    },
    /// Its digest is not that of its bytes.
    #[error(
        "{key}: damaged: it does not end in the digest of its own bytes (a byte is wrong, missing or \
         added)"
    )]
    Damaged {
        /// The object.
        key: String,
    },
    /// Well-formed, but a rule of the format is broken.
    #[error("{key}: {reason}")]
    Rule {
        /// The object.
        key: String,
        /// The rule.
        reason: String,
    },
}

impl FormatError {
    /// A broken rule at `key`.
    pub fn rule(key: &str, reason: impl Into<String>) -> Self {
        Self::Rule {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }
}
