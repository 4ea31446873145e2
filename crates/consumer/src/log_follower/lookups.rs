//! Lookups of slice locations, which run beside the follower, so that a slow object delays neither the log nor
//! other steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::Step;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};

use crate::fetch::{Lookup, locate, locate_from_log};
use crate::node::Node;

/// Most index reads in flight.
const READS_MAX: usize = 16;
/// Steps that are located together, so that far steps do not delay near ones.
const STEPS_TOGETHER: usize = 16;

/// The lookups in progress, which are aborted when this is dropped.
pub(crate) struct Lookups {
    node: Arc<Node>,
    tasks: JoinSet<()>,
    steps: BTreeMap<Id, Vec<Step>>,
    turns: Arc<Semaphore>,
}

impl Lookups {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            tasks: JoinSet::new(),
            steps: BTreeMap::new(),
            turns: Arc::new(Semaphore::new(READS_MAX)),
        }
    }

    /// Whether a step is being looked up.
    pub(crate) fn contains(&self, step: Step) -> bool {
        self.steps.values().flatten().any(|at| *at == step)
    }

    /// Looks up steps, which are in order of need: immediately those that the log locates, the others in the
    /// background.
    pub(crate) fn start(&mut self, found: Vec<Lookup>) {
        let (known, found): (Vec<_>, Vec<_>) = found.into_iter().partition(Lookup::needs_no_index);
        if !known.is_empty() {
            let located = locate_from_log(&self.node.fetcher, &known);
            self.node.located(located);
        }
        let all: Arc<[Lookup]> = found.into();
        for first in (0..all.len()).step_by(STEPS_TOGETHER) {
            let some = first..all.len().min(first + STEPS_TOGETHER);
            let steps = all[some.clone()].iter().map(|one| one.entry.step).collect();
            let (node, turns, all) = (self.node.clone(), self.turns.clone(), all.clone());
            let task = self.tasks.spawn(async move {
                let located = locate(&node.fetcher, node.as_ref(), &all[some], &all, &turns).await;
                node.located(located);
            });
            self.steps.insert(task.id(), steps);
        }
    }

    /// Aborts all lookups; their results are dropped.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
        self.steps.clear();
    }

    /// Waits until a lookup ends; for ever if there is none.
    pub(crate) async fn one_ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => _ = self.steps.remove(&id),
            // The lookup panicked: its steps will be looked up again.
            Some(Err(why)) => _ = self.steps.remove(&why.id()),
            None => std::future::pending().await,
        }
    }
}
