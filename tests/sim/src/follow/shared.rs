//! State that the writer and all nodes share.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_core::ids::Version;
use batchweave_log::SharedFold;
use tokio::sync::watch;

use super::FollowPlan;
use crate::load::memo::Memo;
use crate::store::SimStore;

/// The state that the writer and all nodes share.
pub(super) struct Shared {
    pub(super) plan: FollowPlan,
    pub(super) store: Arc<SimStore>,
    memo: Arc<Memo>,
    begin: watch::Receiver<Option<Duration>>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    opened: u32,
    /// Versions with the times at which nodes knew them.
    pub(super) known: Vec<(Version, Duration)>,
}

impl Shared {
    pub(super) fn new(
        plan: FollowPlan,
        store: Arc<SimStore>,
        begin: watch::Receiver<Option<Duration>>,
    ) -> Self {
        Self {
            plan,
            store,
            memo: Arc::default(),
            begin,
            state: Mutex::default(),
        }
    }

    /// The number of nodes that have opened the log.
    pub(super) fn opened_count(&self) -> u32 {
        self.state().opened
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memo(&self) -> Arc<dyn SharedFold> {
        Arc::clone(&self.memo) as Arc<dyn SharedFold>
    }

    pub(super) fn opened(&self) {
        self.state().opened += 1;
    }

    /// Records that a node has folded these versions.
    pub(super) fn known(&self, versions: Range<Version>) {
        let now = self.store.time.now();
        self.state().known.extend(versions.map(|v| (v, now)));
    }

    /// Returns the beginning of the writes, once all nodes have opened.
    pub(super) async fn begin(&self) -> Duration {
        let mut begin = self.begin.clone();
        // The sender lives as long as the run.
        let begun = begin.wait_for(Option::is_some).await;
        begun.map_or_else(|_| Duration::ZERO, |b| b.unwrap_or_default())
    }
}
