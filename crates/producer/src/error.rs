//! Reasons why the daemon could not start or had to stop, and the exit code of each.

use std::fmt::Display;
use std::io;

use batchweave_core::ids::{Epoch, IdError};
use batchweave_core::order::{SpecError, WeightError};
use batchweave_core::tgb::{BuildError, LayoutError};
use batchweave_daemon::Exit;
use batchweave_log::LogError;
use batchweave_store::StoreError;

use crate::cursor::CursorError;
use crate::packing::Mismatch;
use crate::sources::{DocumentError, Reason, ShapeError, SourceError};
use crate::transform::TransformError;
use crate::worker::WorkerError;

/// The reason why the daemon could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A request to the stream's store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream or its log is missing, damaged or refused.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A newer instance of this producer took over.
    #[error(
        "fenced: producer {producer} was opened again, in term {by} by {instance}, so this older instance stops; nothing is \
         lost, the newer one continues from the last commit. If both were meant to run, give each its own producer.name"
    )]
    Fenced {
        producer: String,
        /// Epoch of the newer instance.
        by: Epoch,
        /// Host and process id of the newer instance.
        instance: String,
    },
    /// A bad document while `on_bad_document = "fail"`.
    #[error(
        "bad document: {0}. Set source.on_bad_document = \"skip\" to leave it out; or correct the file, which \
         needs a new producer.name once batches of this input are committed"
    )]
    Document(DocumentError),
    /// A file of which no document can be read, while `on_bad_document = "fail"`.
    #[error(
        "unusable file: {0}; or take it out of source.paths, which needs a new producer.name once batches of this \
         input are committed"
    )]
    File(DocumentError),
    /// The input as a whole cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tokenizer, the chat template or the arrays of the configuration cannot be used.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// The stored cursor does not fit the configuration.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The stored cursor does not fit the input.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A slice that the format cannot hold.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An object that the format cannot hold.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The admin endpoint cannot listen.
    #[error(transparent)]
    Admin(io::Error),
    /// Two metrics with the same name: a fault of the program.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// A name of the configuration that the check of the configuration let pass: a fault of the program.
    #[error("{0}")]
    Name(#[from] IdError),
    /// A thread could not start or was lost.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The tokenizer no longer gives the tokens that it gave at the start: a fault of the program.
    #[error("the tokenizer is broken since a document made it panic, so this producer stops: {0}")]
    TokenizerBroken(DocumentError),
    /// Weights that the check of the configuration let pass: a fault of the program.
    #[error("sources: {0}")]
    Weights(#[from] WeightError),
    /// A mixture of the log that this producer cannot follow.
    #[error(
        "cannot follow mixture {mixture} with the sources of producer {producer}: {why}; see `batchweave mixture show`, and set \
         another one"
    )]
    Mixture {
        producer: String,
        mixture: u64,
        why: SpecError,
    },
    /// A stage of which batches are committed, which the configuration lacks.
    #[error("{0}")]
    Stage(String),
    /// No process can render conversations, or apply the function, any more.
    #[error("{0}; check that this user may start one more process, and start the producer again")]
    NoProcess(DocumentError),
    /// A document of a producer that began by earlier rules has another meaning by today's.
    #[error("{0}")]
    Changed(DocumentError),
    /// A batch that a fork's parent has comes out otherwise.
    #[error(
        "producer {producer} makes batch {batch} otherwise than the parent of this fork did, so it cannot go on exactly; use \
         the parent's settings, function, libraries and input, or fork with --fresh, which begins the input anew"
    )]
    OtherThanParent { producer: String, batch: u64 },
    /// The input is over before the batches of a fork's parent.
    #[error(
        "the input of producer {producer} ends before batch {batch}, and the parent of this fork made {left} more of it; use \
         the parent's settings and input"
    )]
    LessThanParent {
        producer: String,
        batch: u64,
        left: usize,
    },
    /// A fork that would delete its parent's input.
    #[error(
        "inbox.delete is not for forks, whose parents and other forks read the same inbox: remove it; {0}"
    )]
    SharedInbox(String),
    /// A key of a document that a setting must give a meaning, or none.
    #[error("{0}")]
    Unclear(DocumentError),
}

impl From<ShapeError> for RunError {
    fn from(why: ShapeError) -> Self {
        match why {
            ShapeError::Source(why) => why.into(),
            ShapeError::Worker(why) => why.into(),
        }
    }
}

impl RunError {
    /// Returns the error for a thread or task that ended without its result.
    pub(crate) fn lost(name: &'static str, why: impl Display) -> Self {
        WorkerError::lost(name, why).into()
    }

    /// Returns the error for a reason that no document is to blame for.
    pub(crate) fn of_program(error: DocumentError) -> Self {
        match error.reason {
            Reason::Changed { .. } => Self::Changed(error),
            Reason::LossKey { .. } => Self::Unclear(error),
            _ => Self::NoProcess(error),
        }
    }

    /// Returns the error for a bad document that must not be left out. Skipping helps only where other
    /// documents of the file can be read.
    pub(crate) fn from_bad_document(error: DocumentError) -> Self {
        if error.reason.is_of_file() {
            Self::File(error)
        } else {
            Self::Document(error)
        }
    }

    /// Returns the process's exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(why) | Self::Source(SourceError::Store(why)) => Exit::for_store(why),
            Self::Log(why) => Exit::for_log(why),
            Self::Fenced { .. } => Exit::Fenced,
            Self::Transform(why) => why.exit(),
            Self::Worker(why) => why.exit(),
            Self::Metrics(_) | Self::NoProcess(_) => Exit::Failure,
            Self::Name(_) | Self::TokenizerBroken(_) | Self::Weights(_) => Exit::Internal,
            Self::Source(SourceError::Pattern { .. })
            | Self::Cursor(_)
            | Self::Layout(_)
            | Self::Build(_)
            | Self::Mixture { .. }
            | Self::Stage(_)
            | Self::SharedInbox(_)
            | Self::Admin(_) => Exit::Config,
            Self::Document(_)
            | Self::File(_)
            | Self::Source(_)
            | Self::Mismatch(_)
            | Self::Changed(_)
            | Self::OtherThanParent { .. }
            | Self::LessThanParent { .. }
            | Self::Unclear(_) => Exit::BadInput,
        }
    }
}
