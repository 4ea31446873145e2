//! State that a job's supervisor and ranks share.

use std::sync::{Arc, Mutex, PoisonError};

use batchweave_core::ids::JobName;

use super::node::Node;
use super::restart_points::RestartPoints;
use crate::plan::lifecycle::JobPlan;
use crate::world::shared::Shared;

/// A job and its machines.
pub(super) struct Job {
    pub(super) shared: Arc<Shared>,
    pub(super) plan: JobPlan,
    pub(super) name: JobName,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) restart_points: Mutex<RestartPoints>,
}

impl Job {
    pub(super) fn restart_points<T>(&self, with: impl FnOnce(&mut RestartPoints) -> T) -> T {
        with(
            &mut self
                .restart_points
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}
