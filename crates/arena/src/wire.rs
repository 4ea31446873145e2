//! The messages between consumer daemon and ranks: pure, bounded, little-endian (docs/socket.md).
//!
//! One SEQPACKET message is one header of 16 bytes and a body. A decoder reads what a peer sent, so it
//! never panics, allocates no more than the message's own size asks for, and refuses short bodies,
//! trailing bytes, nonzero reserved fields and values that no correct peer sends.

mod batch;
mod bytes;
mod cause;
mod fault;
mod hello;
mod layout;
mod message;
#[cfg(test)]
mod tests;
mod welcome;

pub use batch::{Batch, Release, SliceRef};
pub use cause::WaitCause;
pub use fault::{ErrorName, Fault};
pub use hello::{Hello, Mode, Parent, Replaces};
pub use layout::{ArrayLayout, Dtype, Layout};
pub use message::{
    Checkpoint, ClientMessage, DaemonMessage, LayoutMessage, Progress, SegmentMessage, Waiting,
};
pub use welcome::Welcome;

/// First bytes of every message.
pub const MAGIC: [u8; 4] = *b"BWSK";
/// The protocol that this build speaks.
pub const PROTOCOL: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the largest message, header included.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Frames in one batch or release message.
pub const FRAMES_MAX: usize = 1024;
/// Layouts that a session may have in use; layout ids are below this.
pub const LAYOUTS_MAX: u32 = 64;
/// Arrays lie at multiples of this in a segment.
pub const ALIGN: u64 = 64;
/// Bytes of a wait's detail text.
pub const DETAIL_BYTES_MAX: usize = 4 << 10;
/// Bytes of the state in a checkpoint mark.
pub const STATE_BYTES_MAX: usize = 16 << 10;
/// Fewest credits of a rank: a loop `for batch in reader` keeps the previous batch.
pub const CREDITS_MIN: u32 = 2;
/// Most credits that a rank may ask for.
pub const CREDITS_MAX: u32 = 1024;

const _: () = {
    assert!(
        HEADER_BYTES + batch::BATCH_HEAD_BYTES + FRAMES_MAX * batch::SLICE_BYTES
            <= MESSAGE_BYTES_MAX
    );
    assert!(HEADER_BYTES + 16 + FRAMES_MAX * 8 <= MESSAGE_BYTES_MAX);
    assert!(HEADER_BYTES + 16 + STATE_BYTES_MAX <= MESSAGE_BYTES_MAX);
};

/// Why bytes are not a message, or a message can't be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes do not begin with the magic: the peer is no BatchWeave.
    #[error(
        "no BatchWeave message: it begins with {found:02x?} instead of \"BWSK\"; check what serves this socket"
    )]
    Magic {
        /// The first bytes.
        found: [u8; 4],
    },
    /// Another protocol version.
    #[error(
        "the peer speaks socket protocol {found}, this build {PROTOCOL}: install client and daemon of one release"
    )]
    Version {
        /// The peer's version.
        found: u16,
    },
    /// A type number that this side does not receive.
    #[error("message type {found} is not one that {side} receives in protocol {PROTOCOL}")]
    Type {
        /// The number.
        found: u16,
        /// Who got it.
        side: &'static str,
    },
    /// The length in the header and the bytes received differ.
    #[error("message of {got} bytes says it has {said}")]
    Length {
        /// Bytes received.
        got: usize,
        /// Bytes by the header.
        said: u32,
    },
    /// The body ends too early or too late, or breaks a rule of its type.
    #[error("{message}: {reason}")]
    Body {
        /// The message's name.
        message: &'static str,
        /// The rule.
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
