//! Steps whose places are being looked up: beside the follower, so that a slow object holds up neither the
//! log nor other steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::Step;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};

use crate::fetch::{Lookup, locate, put_told};
use crate::node::Hub;

/// Index reads in flight.
const READS_MAX: usize = 16;
/// Steps that become known together: far steps do not hold up near ones.
const TOGETHER: usize = 16;

/// Lookups under way. Dropped, they end.
pub(crate) struct Lookups {
    hub: Arc<Hub>,
    tasks: JoinSet<()>,
    steps: BTreeMap<Id, Vec<Step>>,
    turns: Arc<Semaphore>,
}

impl Lookups {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            tasks: JoinSet::new(),
            steps: BTreeMap::new(),
            turns: Arc::new(Semaphore::new(READS_MAX)),
        }
    }

    /// Whether a step is being looked up.
    pub(crate) fn has(&self, step: Step) -> bool {
        self.steps.values().flatten().any(|at| *at == step)
    }

    /// Looks up steps, which are in order of need: at once what the log tells, the rest beside.
    pub(crate) fn start(&mut self, found: Vec<Lookup>) {
        let (known, found): (Vec<_>, Vec<_>) = found.into_iter().partition(Lookup::is_told);
        if !known.is_empty() {
            put_told(&self.hub, &known);
        }
        let all: Arc<[Lookup]> = found.into();
        for first in (0..all.len()).step_by(TOGETHER) {
            let some = first..all.len().min(first + TOGETHER);
            let steps = all[some.clone()].iter().map(|one| one.entry.step).collect();
            let (hub, turns, all) = (self.hub.clone(), self.turns.clone(), all.clone());
            let task = self.tasks.spawn(async move {
                locate(&hub, &all[some], &all, &turns).await;
            });
            self.steps.insert(task.id(), steps);
        }
    }

    /// Ends all lookups; what they had not told is not told.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
        self.steps.clear();
    }

    /// Waits until some lookup is over; for ever when there is none.
    pub(crate) async fn one_is_over(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => _ = self.steps.remove(&id),
            // It panicked: the steps are looked up again.
            Some(Err(why)) => _ = self.steps.remove(&why.id()),
            None => std::future::pending().await,
        }
    }
}
