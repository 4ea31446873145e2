//! Forks: a stream that goes on where another one stood at some step.
//!
//! - `border`: finds the border in the parent's log, by two folds that must agree;
//! - `lists`: the input lists of the parent's producers, as the fork stores them;
//! - `make`: stores the fork.
//!
//! Invariants:
//! - the parent is read, never written; no part of the fork refers to its objects;
//! - `stream.json` is the last object of a fork: a command that was killed earlier left no stream, and the same
//!   command finishes it.

mod border;
mod lists;
mod make;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{Hash, ProducerName, Step};
use batchweave_core::inputs::PinnedFile;
use batchweave_core::manifest::fork::{ForkState, LeftBehind};
use batchweave_core::manifest::stages::Stages;
use batchweave_core::manifest::state::MixtureState;
use batchweave_core::stream::{ParentStream, StreamConfig};
use batchweave_store::Store;
use bytes::Bytes;

use self::border::Crossing;
use crate::error::LogError;
use crate::log::{Log, LogOptions};
use crate::tokenizer::read_tokenizer;

pub use self::make::{Made, make_fork};

/// A fork before it is stored.
#[derive(Debug)]
pub struct ForkPlan {
    /// The parameters of the parent.
    pub stream: StreamConfig,
    pub parent: ParentStream,
    pub state: ForkState,
    pub left: LeftBehind,
    /// The files that each producer counts in.
    pub files: BTreeMap<ProducerName, Vec<PinnedFile>>,
    /// The next step of the parent.
    pub head: Step,
    /// The links of the input lists, by key.
    links: Vec<(String, Bytes)>,
    tokenizer: Option<Bytes>,
}

/// The reason why a stream cannot be forked.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Log(#[from] LogError),
    /// The step has no TGB yet, and is not the next one either.
    #[error(
        "step {step} of {root} is not assigned yet: the stream has steps up to {head}, excluded; fork at {head} or below"
    )]
    NotAssigned {
        root: String,
        step: Step,
        head: Step,
    },
    /// The parent is a fork itself, and begins later.
    #[error("step {step} is below the beginning of {root}: {parent}; fork that one")]
    BelowParent {
        root: String,
        step: Step,
        parent: Box<ParentStream>,
    },
    /// Two folds of the parent gave different states.
    #[error(
        "two folds of {root} up to version {version} give different states of the fork (damaged memory, or a wrong \
         snapshot); nothing was written; run the command again, and `batchweave verify` if it happens again"
    )]
    Differ { root: String, version: String },
    /// The producers of the parent cannot be continued.
    #[error("{root} cannot be forked at step {step}: {why}")]
    Refused {
        root: String,
        step: Step,
        why: String,
    },
    /// The root of the fork holds something else.
    #[error("{root} holds {found}: choose an empty root for the fork")]
    RootInUse { root: String, found: String },
}

impl From<batchweave_store::StoreError> for ForkError {
    fn from(error: batchweave_store::StoreError) -> Self {
        Self::Log(error.into())
    }
}

/// Reads the log of the stream in `store`, and plans its fork at `step`. With `fresh`, the producers of the fork begin
/// with empty positions. `options` open the log.
pub async fn plan_fork(
    store: &Arc<dyn Store>,
    options: &LogOptions,
    step: Step,
    fresh: bool,
) -> Result<ForkPlan, ForkError> {
    let log = Log::open(Arc::clone(store), options).await?;
    let (root, head) = (store.root().to_owned(), log.manifest().next_step());
    let stream = log.manifest().stream().clone();
    if let Some(parent) = stream.parent_with(step) {
        let parent = Box::new(parent.clone());
        return Err(ForkError::BelowParent { root, step, parent });
    }
    if step > head {
        return Err(ForkError::NotAssigned { root, step, head });
    }
    let Crossing {
        version,
        record,
        view,
        mut state,
        left,
    } = border::find(&log, step).await?;
    let (mut files, mut links) = (BTreeMap::new(), Vec::new());
    if fresh {
        state.producers.clear();
        state.mixture = MixtureState::default();
        state.stages = Stages::default();
    } else {
        (files, links) = lists::rebuilt(&log, &mut state).await?;
    }
    let tokenizer = read_tokenizer(store.as_ref(), &stream.tokenizer).await?;
    let parent = ParentStream {
        stream: stream.stream_id,
        root,
        step,
        version,
        record,
        view,
        state: Hash::sha256(&state.to_json()),
    };
    Ok(ForkPlan {
        stream,
        parent,
        state,
        left,
        files,
        head,
        links,
        tokenizer,
    })
}
