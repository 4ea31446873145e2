//! State that all producers of a load share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::manifest::Record;
use batchweave_log::{LogError, SharedFold};
use tokio::sync::watch;

use super::memo::Memo;
use super::plan::LoadPlan;
use crate::actor::Actor;
use crate::store::SimStore;
use crate::world::shared::name;

/// The first entries of the producers are spread over at least this time.
pub(super) const RAMP: Duration = Duration::from_secs(5);

/// The state that all producers of a load share.
pub(super) struct Shared {
    pub(super) plan: LoadPlan,
    pub(super) store: Arc<SimStore>,
    memo: Arc<Memo>,
    begin: watch::Receiver<Option<Duration>>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    newest: BTreeMap<ProducerName, Arc<Actor>>,
    opened: Vec<bool>,
    waiting: u32,
    /// The time at which each TGB was ready, by producer and sequence number.
    pub(super) ready: Vec<Vec<Duration>>,
    pub(super) failures: u64,
    pub(super) failure: Option<String>,
}

impl Shared {
    pub(super) fn new(
        plan: LoadPlan,
        store: Arc<SimStore>,
        begin: watch::Receiver<Option<Duration>>,
    ) -> Self {
        let producers = plan.producers();
        Self {
            plan,
            store,
            memo: Arc::default(),
            begin,
            state: Mutex::new(State {
                opened: vec![false; producers as usize],
                waiting: producers,
                ready: vec![Vec::new(); producers as usize],
                ..State::default()
            }),
        }
    }

    /// The number of producers that have not opened yet.
    pub(super) fn waiting(&self) -> u32 {
        self.state().waiting
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memo(&self) -> Arc<dyn SharedFold> {
        Arc::clone(&self.memo) as Arc<dyn SharedFold>
    }

    pub(super) fn set_newest(&self, number: u32, actor: &Arc<Actor>) {
        let name = name(number);
        self.state().newest.insert(name, Arc::clone(actor));
    }

    pub(super) fn opened(&self, number: u32) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.opened[number as usize], true);
        state.waiting -= u32::from(!before);
    }

    /// Returns the beginning of the load, once all producers have opened.
    pub(super) async fn begin(&self) -> Duration {
        let mut begin = self.begin.clone();
        // The sender lives as long as the run.
        begin
            .wait_for(Option::is_some)
            .await
            .map_or_else(|_| Duration::ZERO, |b| b.unwrap_or_default())
    }

    /// Records that a TGB is ready now; again, if its first process died with it.
    pub(super) fn ready(&self, number: u32, seq: Seq) {
        let now = self.store.time.now();
        let mut state = self.state();
        let ready = &mut state.ready[number as usize];
        ready.truncate(seq as usize);
        ready.resize(seq as usize, now);
        ready.push(now);
    }

    pub(super) fn failed(&self, error: &LogError) {
        let mut state = self.state();
        state.failures += 1;
        state.failure.get_or_insert_with(|| error.to_string());
    }

    /// Returns the process whose record reported last that it leads.
    pub(super) fn leader(&self) -> Option<Arc<Actor>> {
        let writer = self.store.newest_landed(|landed| {
            let record = Record::from_json(&landed.body, 0).ok()?;
            record.hints.leads.then_some(record.writer.name)
        })?;
        let state = self.state();
        let name = writer.parse::<ProducerName>().ok()?;
        state.newest.get(&name).cloned()
    }
}
