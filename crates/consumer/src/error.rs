//! Why the daemon could not start or had to stop, and the exit code of each reason.

use std::io;

use batchweave_arena::{ArenaError, SocketError};
use batchweave_core::ids::{JobName, Step, Version};
use batchweave_daemon::Exit;
use batchweave_log::LogError;
use batchweave_store::StoreError;

/// A daemon that could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream can't be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configured job is open with other parameters.
    #[error(
        "job {job} is open already, since version {opened}, and not as configured:\n  {}\n\
         correct [job], choose another name, or close it with `batchweave job close {job}`",
        .differences.join("\n  ")
    )]
    OtherJob {
        /// Its name.
        job: JobName,
        /// The version that opened it.
        opened: Version,
        /// One line each.
        differences: Vec<String>,
    },
    /// The configured job would begin where the data is gone.
    #[error(
        "job {job} can't be opened: job.start is {step}, below the watermark {watermark}; \
         set job.start to {watermark} or later"
    )]
    JobStart {
        /// Its name.
        job: JobName,
        /// As configured.
        step: Step,
        /// The oldest step that can be read.
        watermark: Step,
    },
    /// The configured arena can never be made; the text gives the sizes.
    #[error("arena.bytes: {0}; lower it, or give the machine or container more memory")]
    ArenaTooLarge(String),
    /// The configured memory node is not there.
    #[error("arena.numa_node: {0}")]
    NoNumaNode(String),
    /// There is no room for the first segment now.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The socket can't be made, or another daemon serves it.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The runtime can't watch the socket.
    #[error("the runtime can't watch the socket: {0}")]
    Runtime(io::Error),
    /// The admin endpoint can't be made.
    #[error(transparent)]
    Admin(io::Error),
    /// Metrics with the same name twice: a fault of the program.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl RunError {
    /// The process's exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(why) | Self::Log(LogError::Store(why)) => Exit::for_store(why),
            Self::Log(
                LogError::NoStream { .. }
                | LogError::RootInUse { .. }
                | LogError::OtherStream { .. },
            )
            | Self::OtherJob { .. } => Exit::StreamRefused,
            Self::Log(_) => Exit::Protocol,
            Self::ArenaTooLarge(_)
            | Self::NoNumaNode(_)
            | Self::JobStart { .. }
            | Self::Socket(_)
            | Self::Admin(_) => Exit::Config,
            // Memory may be there later: the last daemon's arena goes when the ranks let go of it.
            Self::Arena(_) | Self::Runtime(_) | Self::Metrics(_) => Exit::Failure,
        }
    }
}
