//! Errors at start, and the exit code of each.

use std::io;

use batchweave_arena::{ArenaError, SocketError};
use batchweave_core::ids::{JobName, Step, Version};
use batchweave_daemon::Exit;
use batchweave_log::LogError;
use batchweave_store::StoreError;

/// An error that prevents the daemon from starting.
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
         correct [job], choose another name, or close it with `batchweave job close {job} --reason TEXT`",
        .differences.join("\n  ")
    )]
    OtherJob {
        job: JobName,
        /// The version that opened it.
        opened: Version,
        differences: Vec<String>,
    },
    /// The configured job would begin at a step whose data is reclaimed.
    #[error(
        "job {job} can't be opened: job.start is {step}, below the watermark {watermark}; \
         set job.start to {watermark} or later"
    )]
    JobStart {
        job: JobName,
        step: Step,
        /// The oldest step that can be read.
        watermark: Step,
    },
    /// The configured arena can't be created on this machine; the text has the sizes.
    #[error("arena.bytes: {0}; lower it, or give the machine or container more memory")]
    ArenaTooLarge(String),
    /// The configured memory node does not exist.
    #[error("arena.numa_node: {0}")]
    NoNumaNode(String),
    /// There is no memory for the first segment.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The socket can't be bound, or another daemon serves it.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The runtime can't watch the socket.
    #[error("the runtime can't watch the socket: {0}")]
    Runtime(io::Error),
    /// The admin endpoint can't be opened.
    #[error(transparent)]
    Admin(io::Error),
    /// Two metrics have the same name: a bug.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl RunError {
    /// Returns the exit code of the process.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(why) => Exit::for_store(why),
            Self::Log(why) => Exit::for_log(why),
            Self::OtherJob { .. } => Exit::StreamRefused,
            Self::ArenaTooLarge(_)
            | Self::NoNumaNode(_)
            | Self::JobStart { .. }
            | Self::Socket(_)
            | Self::Admin(_) => Exit::Config,
            // Memory may be available later: the last daemon's arena is freed when ranks unmap it.
            Self::Arena(_) | Self::Runtime(_) | Self::Metrics(_) => Exit::Failure,
        }
    }
}
