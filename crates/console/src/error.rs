//! The errors of verbs and their exit codes.

use std::io;

use batchweave_daemon::Exit;
use batchweave_log::{FramesError, LogError};
use batchweave_store::{ErrorKind, Op, StoreError};

/// The error of a verb: its message, and the reason that determines the exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A command line with values that are not allowed.
    #[error("{0}")]
    Usage(String),
    /// An unusable input file.
    #[error("{0}")]
    Input(String),
    /// A step, job or version that is not in the stream.
    #[error("{0}")]
    Absent(String),
    /// A change that the rules or the present state of the stream forbid.
    #[error("{0}")]
    Refused(String),
    /// A place that holds no stream, for a verb that makes none.
    #[error("{0}")]
    NoStream(String),
    /// Damage in the store, or a contradiction in a run.
    #[error("{0}")]
    Unsound(String),
    /// A run without a contradiction whose ledgers end too early.
    #[error("{0}")]
    NotProved(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Frames(#[from] FramesError),
    /// Any other failure of a verb's work.
    #[error("{0}")]
    Failed(String),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Config,
            Self::Input(_) => Exit::BadInput,
            Self::NoStream(_) => Exit::StreamRefused,
            Self::Store(e)
            | Self::Log(LogError::Store(e))
            | Self::Frames(FramesError::Store(e)) => exit_of_store_error(e),
            Self::Log(LogError::Void(_) | LogError::Stopped(_))
            | Self::Absent(_)
            | Self::Refused(_)
            | Self::Failed(_)
            | Self::Output(_) => Exit::Failure,
            Self::Log(e) => Exit::for_log(e),
            Self::Frames(FramesError::Index(_)) | Self::Unsound(_) => Exit::Protocol,
            Self::NotProved(_) => Exit::NotProved,
        }
    }

    /// Whether the reader of standard output has closed the pipe.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Unlike a daemon, a verb reports a missing object below an open root as damage of the stream.
fn exit_of_store_error(error: &StoreError) -> Exit {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Range => Exit::Protocol,
        ErrorKind::Invalid if error.op != Op::Open => Exit::StoreUnavailable,
        _ => Exit::for_store(error),
    }
}
