//! The errors of `batchweave run` itself; those of the daemons are printed as they report them.

use std::io;
use std::path::PathBuf;

use batchweave_console::CliError;

/// A run that can't start, or that lost a file of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A folder of another user, one that others may write, or one that can't be created.
    #[error(
        "no folder for the socket: {folder} belongs to another user, is open to others or cannot be created; set \
         socket.path to a path in a folder of yours"
    )]
    SocketFolder { folder: PathBuf },
    /// The folder of logs can't be created or locked.
    #[error("cannot use the folder of logs {folder}: {why}; name another with --logs")]
    LogFolder { folder: PathBuf, why: io::Error },
    /// A log file can't be renamed or written.
    #[error(
        "cannot write the log {path}: {why}; make room or the folder writable, or name another folder with --logs"
    )]
    LogFile { path: PathBuf, why: io::Error },
    /// The folder of logs that belongs to the file is locked by another run.
    #[error(
        "{file} is run by another process: {folder} is locked; stop that run, or give this one a file and a \
         store.url of its own"
    )]
    Running { file: PathBuf, folder: PathBuf },
    /// The folder of logs that was named is locked by another run.
    #[error(
        "{folder} has the logs of another run; stop that one, or name another folder with --logs"
    )]
    LogsTaken { folder: PathBuf },
    /// The producer is at work, and a second one would end both runs.
    #[error(
        "producer {producer} of {url} is at work already ({by}), and a second one would end both; stop that one, or give \
         this run a stream of its own (store.url)"
    )]
    Producing {
        url: String,
        producer: String,
        by: String,
    },
    /// All sockets' names are taken.
    #[error(
        "no name for the socket: {folder} has {sockets} that are served by other runs; stop some, or set socket.path"
    )]
    NoSocket { folder: PathBuf, sockets: usize },
    /// All tried ports are taken.
    #[error("no free port on this machine, after {tries} tries; set admin.listen")]
    NoPort { tries: usize },
    /// A daemon's program can't be started.
    #[error(
        "cannot start {program}: {why}; install it beside batchweave or in a folder of PATH (`make install` does)"
    )]
    NoProgram {
        program: &'static str,
        why: io::Error,
    },
    /// The system refuses handlers of signals.
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::SocketFolder { .. } => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
