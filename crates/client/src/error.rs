//! The error type. Each error has the name of docs/socket.md, in every client.

use std::time::Duration;

use batchweave_arena::{ArenaError, SocketError};
use batchweave_wire::{ErrorName, Fault, WaitCause, WireError};

/// The reason why a reader cannot connect or return a step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An error reported by the daemon.
    #[error("{0}")]
    Daemon(Fault),
    /// No daemon served the socket in time.
    #[error("no daemon within {waited:?}: {source}")]
    NoDaemon {
        /// The time spent trying.
        waited: Duration,
        source: SocketError,
    },
    /// The daemon disconnected and did not return in time.
    #[error(
        "the daemon at {socket} disconnected and did not return within {waited:?} (step {step}); see its log, \
         or start it again: the reader can continue at this step"
    )]
    DaemonGone {
        socket: String,
        step: u64,
        waited: Duration,
    },
    /// The step did not arrive in time.
    #[error("step {step} did not arrive within {waited:?}: {}", cause_text(*.cause, .detail))]
    Timeout {
        step: u64,
        waited: Duration,
        /// The last cause that the daemon gave.
        cause: Option<WaitCause>,
        detail: String,
    },
    /// The step did not arrive because this rank holds all its credits.
    #[error(
        "step {step} did not arrive within {waited:?}: this rank still holds the frames of {held}; \
         drop old batches, or connect with more credits"
    )]
    FramesHeld {
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
    /// A text that is not a reader's state.
    #[error(
        "the saved state {reason}; pass what state_dict() returned, unchanged, or start at a step"
    )]
    BadState { reason: String },
    /// A report of a step that this rank did not read, or with a wrong reason.
    #[error(
        "step {step} is not reported: {reason}; report the steps of batches that next() returned"
    )]
    BadReport { step: u64, reason: String },
    /// Options that contradict themselves.
    #[error("{0}; correct the options of connect")]
    BadHello(String),
    /// Rows that cannot be divided among the ranks.
    #[error("{0}; choose a number of ranks that divides the rows")]
    BadMesh(String),
    /// The reader is closed, or was inherited by a forked child.
    #[error("the reader is closed{0}")]
    Closed(&'static str),
    /// An array that the slice lacks, or has with another type.
    #[error("no array {name:?} of the requested type; the slice has {have}")]
    NoArray {
        name: String,
        /// Names, types and shapes of the slice's arrays.
        have: String,
    },
    /// Borders of bins that do not divide their slice.
    #[error(
        "slice {slice}: its arrays documents and bins do not divide its tokens; `batchweave show STEP --slices` reads them again"
    )]
    BadBins { slice: u32 },
    /// The system refused a segment or a system call.
    #[error(transparent)]
    System(#[from] ArenaError),
    /// The system refused a call on the socket.
    #[error("the socket of the daemon: {0}")]
    Io(#[from] std::io::Error),
}

impl ClientError {
    /// Returns the error's name in docs/socket.md.
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
            Self::BadReport { .. } => "bad_report",
            Self::BadMesh(_) => ErrorName::BadMesh.name(),
            Self::BadHello(_) => ErrorName::BadHello.name(),
            Self::Closed(_) => "closed",
            Self::NoArray { .. } => "no_array",
            Self::BadBins { .. } => "bad_bins",
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
