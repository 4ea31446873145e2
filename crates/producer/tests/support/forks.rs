//! Forks of a world's stream, made as the command line makes them.

use std::sync::Arc;

use batchweave_core::ids::StreamId;
use batchweave_log::{ForkPlan, LogOptions, Made, make_fork, plan_fork};
use batchweave_store::Store;

use super::World;

impl World {
    /// Returns a fork of this stream at `step`, made as the command line makes it.
    pub async fn fork(&self, step: u64, fresh: bool) -> Self {
        let plan = self.plan_fork(step, fresh).await;
        self.fork_by(&plan).await
    }

    pub async fn plan_fork(&self, step: u64, fresh: bool) -> ForkPlan {
        let store: Arc<dyn Store> = self.store.clone();
        let options = LogOptions {
            write_snapshots: false,
            ..LogOptions::new(rand::random())
        };
        plan_fork(&store, &options, step, fresh).await.unwrap()
    }

    pub async fn fork_by(&self, plan: &ForkPlan) -> Self {
        let child = Self::new();
        let store: Arc<dyn Store> = child.store.clone();
        let id = StreamId::from_random(rand::random());
        let made = make_fork(&store, plan, id, "2026-11-29T00:00:00Z".to_owned());
        assert!(matches!(made.await.unwrap(), Made::Created(_)));
        child
    }
}
