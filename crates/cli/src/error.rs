//! Why a verb could not do its work, and the exit code for it.

use std::io;

use batchweave_core::tgb::TgbError;
use batchweave_daemon::Exit;
use batchweave_log::LogError;
use batchweave_store::{ErrorKind, Op, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line asks for what can't be.
    #[error("{0}")]
    Usage(String),
    /// A file of the person's that can't be used.
    #[error("{0}")]
    Input(String),
    /// What was asked for is not in the stream.
    #[error("{0}")]
    Absent(String),
    /// The rules of the stream, or what is alive in it, speak against it.
    #[error("{0}")]
    Refused(String),
    /// What is stored is not whole, or a run can't be proved.
    #[error("{0}")]
    Unsound(String),
    /// Nothing speaks against a run, but its ledgers end before it does.
    #[error("{0}")]
    NotProved(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Tgb(#[from] TgbError),
    /// Any other failure of a verb's work.
    #[error("{0}")]
    Failed(String),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    /// The exit code; the root command's help lists them.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Config,
            Self::Input(_) => Exit::BadInput,
            Self::Store(e) => exit_of_store_error(e),
            Self::Log(e) => exit_of_log_error(e),
            Self::Tgb(_) | Self::Unsound(_) => Exit::Protocol,
            Self::NotProved(_) => Exit::NotProved,
            Self::Absent(_) | Self::Refused(_) | Self::Failed(_) | Self::Output(_) => Exit::Failure,
        }
    }

    /// The reader of our output has gone.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Unlike a daemon, a verb takes what is missing below an open root as damage of the stream.
fn exit_of_store_error(error: &StoreError) -> Exit {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Range => Exit::Protocol,
        ErrorKind::Invalid if error.op != Op::Open => Exit::StoreUnavailable,
        _ => Exit::for_store(error),
    }
}

fn exit_of_log_error(error: &LogError) -> Exit {
    match error {
        LogError::Store(e) => exit_of_store_error(e),
        LogError::NoStream { .. } | LogError::RootInUse { .. } | LogError::OtherStream { .. } => {
            Exit::StreamRefused
        }
        LogError::Format(_)
        | LogError::Fold(_)
        | LogError::Gap { .. }
        | LogError::Altered { .. }
        | LogError::OtherRoot { .. }
        | LogError::Unconfirmed { .. }
        | LogError::Undone { .. }
        | LogError::NoSegment { .. } => Exit::Protocol,
        LogError::Void(_) | LogError::Stopped(_) => Exit::Failure,
    }
}
