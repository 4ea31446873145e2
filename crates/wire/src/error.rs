//! The error of decoding and encoding.

use crate::PROTOCOL;

/// Why bytes are not a message, or a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes do not begin with the magic number: the peer does not speak this protocol.
    #[error(
        "not a BatchWeave message: it begins with {found:02x?} instead of \"BWSK\"; check which program \
         serves this socket"
    )]
    Magic { found: [u8; 4] },
    /// The peer speaks another protocol version.
    #[error(
        "the peer speaks socket protocol {found}, this build {PROTOCOL}: install client and daemon of one release"
    )]
    Version { found: u16 },
    /// A type number that this side does not receive.
    #[error("message type {found} is not one that {side} receives in protocol {PROTOCOL}")]
    Type { found: u16, side: &'static str },
    /// The length in the header and the bytes received differ.
    #[error("message of {received} bytes, but its header states {stated}")]
    Length {
        received: usize,
        /// Bytes that the header states.
        stated: u32,
    },
    /// The body ends too early or too late, or breaks a rule of its type.
    #[error("{message}: {reason}")]
    Body {
        message: &'static str,
        reason: String,
    },
}

impl WireError {
    pub(crate) fn body(message: &'static str, reason: impl Into<String>) -> Self {
        Self::Body {
            message,
            reason: reason.into(),
        }
    }
}
