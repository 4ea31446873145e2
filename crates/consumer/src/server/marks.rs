//! Checkpoint marks of one session: validated, stored in the background, and answered.
//!
//! A mark that can't be stored is retried and never stops the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use batchweave_core::guards;
use batchweave_core::retention::Mark;
use batchweave_wire::{Checkpoint, DaemonMessage, ErrorName, Fault};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::engine::SessionId;
use crate::job::marks;
use crate::node::Node;

/// Marks of one session that may wait for the store: at most 4 MiB of states. A correct rank has a few.
const WAITING_MAX: usize = 256;
/// Refusals of one session that are logged; the metrics count all.
const REFUSALS_LOGGED: u32 = 16;

/// The marks of one session. Clones share its limits.
#[derive(Clone)]
pub(super) struct Marks {
    node: Arc<Node>,
    tasks: TaskTracker,
    session: SessionId,
    /// A permit for each mark that may wait for the store.
    slots: Arc<Semaphore>,
    refused: Arc<AtomicU32>,
}

impl Marks {
    pub(super) fn new(node: Arc<Node>, tasks: TaskTracker, session: SessionId) -> Self {
        Self {
            node,
            tasks,
            session,
            slots: Arc::new(Semaphore::new(WAITING_MAX)),
            refused: Arc::default(),
        }
    }

    /// Validates a mark, stores it in the background, and sends the rank the outcome.
    pub(super) fn mark(&self, made: &Checkpoint) {
        let policy = self.node.job.checkpoints;
        let stream = self.node.resources.stream.stream_id;
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            let message = format!("{WAITING_MAX} marks of this rank wait for the store already");
            let fault = Fault::new(ErrorName::MarkNotStored, message).at_step(made.step);
            return self.refuse("refused", fault);
        };
        let validated = self
            .node
            .apply(|state| state.mark(self.session, made, policy, stream));
        let (mark, receipt) = match validated {
            Ok(None) => return self.send(DaemonMessage::Marked(made.step)),
            Err(fault) => return self.refuse("refused", fault),
            Ok(Some(valid)) => valid,
        };
        if mark.is_none() {
            self.send(DaemonMessage::Marked(made.step));
        }
        let marks = self.clone();
        self.tasks.spawn(async move {
            let recorded = guards::confirms_mark_before_ledger() || receipt.await.unwrap_or(false);
            if let Some(mark) = mark {
                marks.store(&mark, recorded).await;
            }
            drop(slot);
        });
    }

    fn send(&self, message: DaemonMessage) {
        self.node.apply(|state| state.send(self.session, message));
    }

    fn refuse(&self, outcome: &str, fault: Fault) {
        // A rank that marks in a loop must not fill the log.
        if self.refused.fetch_add(1, Relaxed) < REFUSALS_LOGGED {
            tracing::warn!(session = self.session, %fault, "a mark was not stored");
        }
        let marks = &self.node.resources.metrics.marks;
        marks.with_label_values(&[outcome]).inc();
        self.send(DaemonMessage::MarkRefused(fault));
    }

    async fn store(&self, mark: &Mark, recorded: bool) {
        let resources = &self.node.resources;
        if let Err(fault) = marks::store(resources, mark, recorded).await {
            return self.refuse("lost", fault);
        }
        resources.metrics.marks.with_label_values(&["stored"]).inc();
        self.send(DaemonMessage::Marked(mark.step));
        // The rank of coordinate 0 checks the marks of all.
        if mark.dp_rank == Some(0) && mark.dp_size > 1 {
            marks::warn_of_incomplete(resources, mark).await;
        }
    }
}
