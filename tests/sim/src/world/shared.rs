//! State that all actors of a world share, and the names in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchweave_core::ids::{Hash, ProducerName, Seq, Step, StreamId};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_log::LogError;

use super::content::SLICES;
use crate::evidence::{Marked, Received, Session, Violation};
use crate::plan::Plan;
use crate::store::SimStore;

/// The state that all actors of a world share.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) store: Arc<SimStore>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    done: bool,
    trained: bool,
    pub(super) acknowledged: BTreeMap<u32, Seq>,
    end: Option<Step>,
    pub(super) sessions: Vec<Session>,
    pub(super) received: Vec<Received>,
    pub(super) marked: Vec<Marked>,
    pub(super) found: Vec<Violation>,
}

impl Shared {
    pub(super) fn new(plan: Plan, store: Arc<SimStore>) -> Self {
        let state = Mutex::default();
        Self { plan, store, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all recorded evidence.
    pub(super) fn take(&self) -> State {
        std::mem::take(&mut self.state())
    }

    pub(super) fn set_done(&self) {
        self.state().done = true;
    }

    pub(crate) fn found(&self, check: &'static str, actor: u32, text: String) {
        let found = Violation {
            check,
            actor,
            version: None,
            at: Some(self.store.time.now()),
            text,
        };
        self.state().found.push(found);
    }

    pub(super) fn acknowledged(&self, producer: u32, next: Seq) {
        let mut state = self.state();
        let known = state.acknowledged.entry(producer).or_default();
        *known = next.max(*known);
    }

    /// Returns true if the world's store or its faulty program can cause this error, so that a
    /// retry may succeed.
    pub(crate) fn may_pass(&self, error: &LogError) -> bool {
        match error {
            LogError::Store(_) => true,
            LogError::Fold(error) => self.plan.stops() && error.may_be_repaired(),
            _ => false,
        }
    }

    /// Returns the stream's id.
    pub(crate) fn stream_id(&self) -> StreamId {
        stream_id(self.plan.seed)
    }

    /// Returns true if all input is committed.
    pub(crate) fn done(&self) -> bool {
        self.state().done
    }

    /// Returns true if all jobs have read their steps.
    pub(crate) fn trained(&self) -> bool {
        self.state().trained
    }

    pub(crate) fn set_trained(&self) {
        self.state().trained = true;
    }

    /// Returns the first step after the end, once all input is committed.
    pub(crate) fn end(&self) -> Option<Step> {
        self.state().end
    }

    pub(crate) fn set_end(&self, end: Step) {
        self.state().end = Some(end);
    }

    /// Records a session. Returns its index.
    pub(crate) fn session(&self, session: Session) -> usize {
        let mut state = self.state();
        state.sessions.push(session);
        state.sessions.len() - 1
    }

    /// Records a mark that was confirmed to its rank.
    pub(crate) fn marked(&self, marked: Marked) {
        self.state().marked.push(marked);
    }

    /// Records a step that a rank received.
    pub(crate) fn received(&self, step: Received) {
        self.state().received.push(step);
    }
}

/// Returns the name of producer `number`.
pub(crate) fn name(number: u32) -> ProducerName {
    // A letter and digits are a valid name.
    match format!("p{number}").parse() {
        Ok(name) => name,
        Err(e) => unreachable!("{e}"),
    }
}

fn stream_id(seed: u64) -> StreamId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&seed.to_le_bytes());
    StreamId::from_random(id)
}

/// Returns the stream of a run.
pub(crate) fn stream(seed: u64, order: StreamOrder, producers: Vec<ProducerName>) -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: stream_id(seed),
        slices: SLICES,
        order,
        producers,
        tokenizer: TokenizerId {
            name: "bytes".into(),
            fingerprint: Hash::sha256(b"bytes"),
        },
        seq_len: 8,
        rows_per_slice: 1,
        created: "2026-01-01T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}
