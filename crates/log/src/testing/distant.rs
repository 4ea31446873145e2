//! Test helpers: a store with latency, a policy with scripted actions, and a producer that has one.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use batchweave_core::commit_policy::{Action, Event, Policy, Queue};
use batchweave_store::layer::{self, Call};
use batchweave_store::{Effect, ErrorKind, Op, StoreError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::testing::prelude::*;

/// One producer's connection to the store: the latency of each request is drawn from a seed. Needs a runtime
/// with paused time.
#[derive(Debug)]
pub(crate) struct Distant {
    inner: Arc<dyn Store>,
    rng: Mutex<StdRng>,
    /// Requests are never answered, as in a process that was stopped.
    dead: AtomicBool,
    /// Everything is answered with 503.
    busy: AtomicBool,
    /// Everything under `intents/` is answered with 403.
    denies_intents: bool,
    /// Requests of one kind all take the same time, so that no race is won by chance.
    steady: bool,
    pub(crate) denied: AtomicU64,
}

impl Distant {
    pub(crate) fn new(inner: &Arc<dyn Store>, seed: u64) -> Arc<Self> {
        Arc::new(Self::with(inner, seed))
    }

    pub(crate) fn without_intents(inner: &Arc<dyn Store>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            denies_intents: true,
            ..Self::with(inner, seed)
        })
    }

    pub(crate) fn steady(inner: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            steady: true,
            ..Self::with(inner, 0)
        })
    }

    fn with(inner: &Arc<dyn Store>, seed: u64) -> Self {
        Self {
            inner: Arc::clone(inner),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            dead: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            denies_intents: false,
            steady: false,
            denied: AtomicU64::new(0),
        }
    }

    /// From now on no request has an effect or an answer.
    pub(crate) fn die(&self) {
        self.dead.store(true, Relaxed);
    }

    /// Sets whether each request is refused.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Relaxed);
    }

    /// Waits for half of a request's latency; for ever after `die`.
    async fn travel(&self, most_ms: u64) {
        let drawn = self.rng.lock().unwrap().random_range(500..most_ms * 500);
        let us = if self.steady { most_ms * 250 } else { drawn };
        tokio::time::sleep(Duration::from_micros(us)).await;
        if self.dead.load(Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    async fn ask<T>(
        &self,
        op: Op,
        key: &str,
        most_ms: u64,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.travel(most_ms).await;
        let refused = |kind, detail: &str| StoreError {
            op,
            location: format!("{}/{key}", self.inner.root()),
            kind,
            effect: Effect::DidNot,
            detail: detail.into(),
        };
        let answer = if self.busy.load(Relaxed) {
            Err(refused(ErrorKind::Throttled, "503"))
        } else if self.denies_intents && key.starts_with(keys::INTENTS) {
            self.denied.fetch_add(1, Relaxed);
            Err(refused(ErrorKind::Denied, "403"))
        } else {
            request.await
        };
        self.travel(most_ms).await;
        answer
    }
}

const WRITE_MS: u64 = 60;
const READ_MS: u64 = 30;
const LIST_MS: u64 = 80;

#[async_trait]
impl layer::Intercept for Distant {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let most_ms = match call.op {
            Op::List => LIST_MS,
            Op::Create | Op::Upload | Op::Delete => WRITE_MS,
            Op::Open | Op::Get | Op::GetRange | Op::Head => READ_MS,
        };
        self.ask(call.op, call.key, most_ms, run).await
    }
}

/// The result of an action, as far as tests need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActionResult {
    CaughtUp,
    Behind,
    Announced(bool),
    Listed(usize),
    Gathered(usize),
    Won,
    Lost,
    Nothing,
}

impl ActionResult {
    fn from_event(event: &Event) -> Self {
        match event {
            Event::CaughtUp(_) => Self::CaughtUp,
            Event::Behind(_) => Self::Behind,
            Event::Announced(stored) => Self::Announced(*stored),
            Event::Listed(others) => Self::Listed(*others),
            Event::Gathered(others) => Self::Gathered(*others),
            Event::Won { .. } => Self::Won,
            Event::Lost(_) => Self::Lost,
            Event::Ready | Event::Timer => Self::Nothing,
        }
    }
}

#[derive(Debug, Default)]
struct Script {
    actions: VecDeque<Action>,
    results: Vec<ActionResult>,
    acting: bool,
}

/// A policy that takes its actions from the test, one after another; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptedPolicy(Arc<Mutex<Script>>);

pub(crate) const CATCH_UP: Action = Action::CatchUp(1);
/// Commit what is ready, and what was gathered.
pub(crate) const PUT_ALL: Action = Action::Put {
    leads: true,
    combine: true,
    put_ms: None,
};

impl ScriptedPolicy {
    /// Adds actions, which may end the commit task; the next `run` returns their results too.
    pub(crate) fn push(&self, actions: &[Action]) {
        self.0.lock().unwrap().actions.extend(actions);
    }

    /// Adds actions and waits; returns the result of each since the last `run`.
    pub(crate) async fn run(&self, actions: &[Action]) -> Vec<ActionResult> {
        self.push(actions);
        for _ in 0..60_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut script = self.0.lock().unwrap();
            if script.actions.is_empty() && !script.acting {
                return std::mem::take(&mut script.results);
            }
        }
        panic!("not done in a minute: {:?}", self.0.lock().unwrap());
    }
}

impl Policy for ScriptedPolicy {
    fn step(&mut self, _: Duration, _: Queue, event: Event) -> Action {
        let mut script = self.0.lock().unwrap();
        if std::mem::take(&mut script.acting) {
            script.results.push(ActionResult::from_event(&event));
        }
        let next = script.actions.pop_front();
        script.acting = next.is_some();
        next.unwrap_or(Action::Wait(Duration::from_millis(1)))
    }
}

/// Creates a stream; returns its store twice, as what it is and as what producers take.
pub(crate) async fn new_stream() -> (Arc<MemoryStore>, Arc<dyn Store>) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    (memory, store)
}

/// Starts a producer with a scripted policy; it has committed one TGB.
pub(crate) async fn scripted_producer(
    store: &Arc<dyn Store>,
    name: &str,
    seed: u8,
) -> (ScriptedPolicy, CommitQueue) {
    let policy = ScriptedPolicy::default();
    let producer = opened(store, name, seed).await;
    let first = item(&producer, 0, 1);
    let queue = producer.spawn(policy.clone(), CommitOptions::default());
    assert!(queue.submit(first).await);
    // The commit task does not ask its policy before it has an item.
    let results = policy.run(&[CATCH_UP, PUT_ALL]).await;
    assert_eq!(results.last(), Some(&ActionResult::Won));
    (policy, queue)
}

/// Returns the TGB that `scripted_producer` has committed.
pub(crate) fn first() -> (String, u64) {
    ("leader".to_owned(), 0)
}

pub(crate) fn intents_in(memory: &MemoryStore) -> Vec<String> {
    let mut keys = memory.keys();
    keys.retain(|key| key.starts_with(keys::INTENTS));
    keys
}
