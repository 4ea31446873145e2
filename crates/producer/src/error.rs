//! Why the daemon could not start or had to stop, and the exit code of each reason.

use std::io;

use batchweave_core::ids::{Epoch, IdError};
use batchweave_core::tgb::{BuildError, LayoutError};
use batchweave_daemon::Exit;
use batchweave_log::LogError;
use batchweave_store::StoreError;

use crate::chat::TemplateError;
use crate::cursor::CursorError;
use crate::packing::Mismatch;
use crate::sources::{DocumentError, SourceError};
use crate::tokenizer::TokenizerError;

/// A daemon that could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream can't be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A newer instance took over.
    #[error(
        "fenced: producer {producer} was opened again, in epoch {by} by {instance}, so this older instance stops; nothing is \
         lost, the newer one goes on from the last commit. If both were meant to run, give each its own producer.name"
    )]
    Fenced {
        /// The producer.
        producer: String,
        /// The newer epoch.
        by: Epoch,
        /// The instance that opened the newer epoch.
        instance: String,
    },
    /// A bad document, and `on_bad_document = "fail"`.
    #[error(
        "bad document: {0}. Set source.on_bad_document = \"skip\" to leave it out; or mend the file, which \
         needs a new producer.name once batches of this input are committed"
    )]
    Document(DocumentError),
    /// The input can't be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tokenizer can't be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template can't be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The pad token is not in the vocabulary.
    #[error(
        "packing.pad_token: {token} is not below {bound}, the size of the vocabulary; name one of its tokens"
    )]
    PadToken {
        /// As configured.
        token: u32,
        /// Of the tokenizer.
        bound: u32,
    },
    /// The cursor does not fit the configuration.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The cursor does not fit the input.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A slice that the format can't hold.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An object that the format can't hold.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The admin endpoint can't be made.
    #[error(transparent)]
    Admin(io::Error),
    /// Metrics with the same name twice: a fault of the program.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// A name of the configuration that the check of the configuration let pass: a fault of the program.
    #[error("{0}")]
    Name(#[from] IdError),
    /// The machine has no thread to spare.
    #[error(
        "cannot start the thread {name:?}: {why}; raise the limit on processes and threads (ulimit -u, TasksMax=, \
         pids.max), or free memory"
    )]
    NoThread {
        /// The thread.
        name: &'static str,
        /// The system's words.
        why: io::Error,
    },
    /// A thread or task ended without its result: a fault of the program.
    #[error(
        "the thread {name:?} was lost by a fault of the program ({why}); what was committed is whole, and a restart goes \
         on from there. Please report it"
    )]
    Lost {
        /// The thread.
        name: &'static str,
        /// What is known of it.
        why: String,
    },
    /// The tokenizer no longer gives the tokens that it gave at the start: a fault of the program.
    #[error("the tokenizer is broken since a document made it panic, so this producer stops: {0}")]
    TokenizerBroken(DocumentError),
    /// Nothing renders conversations any more.
    #[error("{0}; see that this user may start one more process, and start the producer again")]
    NoRenderer(DocumentError),
}

impl RunError {
    /// A task that did not come back.
    pub(crate) fn lost(name: &'static str, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        Self::Lost { name, why }
    }

    /// The process's exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(why)
            | Self::Log(LogError::Store(why))
            | Self::Source(SourceError::Store(why)) => Exit::for_store(why),
            Self::Log(
                LogError::NoStream { .. }
                | LogError::RootInUse { .. }
                | LogError::OtherStream { .. },
            ) => Exit::StreamRefused,
            Self::Log(_) => Exit::Protocol,
            Self::Fenced { .. } => Exit::Fenced,
            Self::Tokenizer(TokenizerError::Embedded { .. })
            | Self::Metrics(_)
            | Self::NoThread { .. }
            | Self::NoRenderer(_) => Exit::Failure,
            Self::Name(_) | Self::Lost { .. } | Self::TokenizerBroken(_) => Exit::Internal,
            Self::Source(SourceError::Pattern { .. })
            | Self::Tokenizer(_)
            | Self::PadToken { .. }
            | Self::Template(_)
            | Self::Cursor(_)
            | Self::Layout(_)
            | Self::Build(_)
            | Self::Admin(_) => Exit::Config,
            Self::Document(_) | Self::Source(_) | Self::Mismatch(_) => Exit::BadInput,
        }
    }
}
