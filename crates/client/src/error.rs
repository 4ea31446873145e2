//! One error type. Each error has the name that docs/socket.md gives it, in every client.

use std::time::Duration;

use batchweave_arena::{ArenaError, SocketError};
use batchweave_wire::{ErrorName, Fault, WaitCause, WireError};

/// Why a reader could not connect or hand out a step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The daemon said so.
    #[error("{0}")]
    Daemon(Fault),
    /// Nobody served the socket in time.
    #[error("no daemon within {waited:?}: {source}")]
    NoDaemon {
        /// How long it was tried.
        waited: Duration,
        source: SocketError,
    },
    /// The daemon went away and did not come back in time.
    #[error(
        "the daemon at {socket} went away and did not come back within {waited:?} (step {step}); see its log, \
         or start it again: the reader can go on from this step"
    )]
    DaemonGone {
        socket: String,
        /// The step waited for.
        step: u64,
        waited: Duration,
    },
    /// The step did not come in time.
    #[error("step {step} did not come within {waited:?}: {}", cause_text(*.cause, .detail))]
    Timeout {
        /// The step waited for.
        step: u64,
        waited: Duration,
        /// The last cause that the daemon gave.
        cause: Option<WaitCause>,
        detail: String,
    },
    /// The step did not come because this rank holds all its credits.
    #[error(
        "step {step} did not come within {waited:?}: this rank still holds the frames of {held}; \
         drop old batches, or ask for more credits"
    )]
    FramesHeld {
        /// The step waited for.
        step: u64,
        waited: Duration,
        /// The frames, as `step 3 (slices 0, 1)`.
        held: String,
    },
    /// The socket could not be used at all.
    #[error(transparent)]
    Socket(SocketError),
    /// A message that breaks the protocol.
    #[error(
        "the daemon at {socket} broke the protocol: {reason}; install client and daemon of one release"
    )]
    BadMessage { socket: String, reason: String },
    /// The daemon speaks another protocol.
    #[error("{0}")]
    ProtocolVersion(WireError),
    /// A text that is no state of a reader.
    #[error(
        "the saved state {reason}; pass what state_dict() returned, unchanged, or start at a step"
    )]
    BadState { reason: String },
    /// Options that contradict themselves.
    #[error("{0}; correct the options of connect")]
    BadHello(String),
    /// Rows that can't be shared out among so many ranks.
    #[error("{0}; choose a number of ranks that divides the rows")]
    BadMesh(String),
    /// The reader is closed, or was inherited by a forked child.
    #[error("the reader is closed{0}")]
    Closed(&'static str),
    /// An array that the slice does not have, or of another type.
    #[error("no array {name:?} of the type asked for; the slice has {have}")]
    NoArray {
        /// The name asked for.
        name: String,
        /// Names, types and shapes of those that are there.
        have: String,
    },
    /// The system refused a segment or a system call.
    #[error(transparent)]
    System(#[from] ArenaError),
    /// The system refused a call on the socket.
    #[error("the socket of the daemon: {0}")]
    Io(#[from] std::io::Error),
}

impl ClientError {
    /// The error's name in docs/socket.md.
    pub fn name(&self) -> &str {
        match self {
            Self::Daemon(fault) => &fault.name,
            Self::NoDaemon { .. } => "no_daemon",
            Self::DaemonGone { .. } => "daemon_gone",
            Self::Timeout { .. } => "timeout",
            Self::FramesHeld { .. } => "frames_held",
            Self::BadMessage { .. } => ErrorName::BadMessage.name(),
            Self::ProtocolVersion(_) => ErrorName::ProtocolVersion.name(),
            Self::BadState { .. } => "bad_state",
            Self::BadMesh(_) => ErrorName::BadMesh.name(),
            Self::BadHello(_) => ErrorName::BadHello.name(),
            Self::Closed(_) => "closed",
            Self::NoArray { .. } => "no_array",
            Self::System(_) | Self::Socket(_) | Self::Io(_) => "system",
        }
    }
}

fn cause_text(cause: Option<WaitCause>, detail: &str) -> String {
    match (cause, detail) {
        (None, _) => "the daemon gave no cause; see its log".to_owned(),
        (Some(cause), "") => cause.name().to_owned(),
        (Some(cause), detail) => format!("{cause}: {detail}"),
    }
}
