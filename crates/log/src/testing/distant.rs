//! Test helpers: a store some milliseconds away, and a policy that does as it is told.

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

/// One producer's way to the store: each request takes a time drawn from a seed. Needs a runtime
/// whose time is paused.
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
    /// Requests of a kind all take the same time: nobody wins a race by luck.
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

    /// From now on nothing that its user asks for happens, or is answered.
    pub(crate) fn die(&self) {
        self.dead.store(true, Relaxed);
    }

    /// Whether whatever is asked for is refused for now.
    pub(crate) fn is_busy(&self, busy: bool) {
        self.busy.store(busy, Relaxed);
    }

    /// Half of a request's time; never over for the dead.
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
        (op, key): (Op, &str),
        most_ms: u64,
        answer: impl Future<Output = Result<T, StoreError>>,
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
            answer.await
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
            _ => READ_MS,
        };
        self.ask((call.op, call.key), most_ms, run).await
    }
}

/// What came of an action, as far as tests care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    CaughtUp,
    Behind,
    Announced(bool),
    Listed(usize),
    Gathered(usize),
    Won,
    Lost,
    Nothing,
}

impl Came {
    fn of(event: &Event) -> Self {
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
    came: Vec<Came>,
    acting: bool,
}

/// Takes its actions from the test, one after another; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Script>>);

pub(crate) const LOOK: Action = Action::CatchUp(1);
/// Commit what is ready, and what was gathered.
pub(crate) const PUT_ALL: Action = Action::Put {
    leads: true,
    combine: true,
    put_ms: None,
};

impl Told {
    /// Says what to do next; for who may end by it.
    pub(crate) fn say(&self, actions: &[Action]) {
        self.0.lock().unwrap().actions.extend(actions);
    }

    /// The same, and waits; returns what came of each action.
    pub(crate) async fn does(&self, actions: &[Action]) -> Vec<Came> {
        self.say(actions);
        for _ in 0..60_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut script = self.0.lock().unwrap();
            if script.actions.is_empty() && !script.acting {
                return std::mem::take(&mut script.came);
            }
        }
        panic!("not done in a minute: {:?}", self.0.lock().unwrap());
    }
}

impl Policy for Told {
    fn step(&mut self, _: Duration, _: Queue, event: Event) -> Action {
        let mut script = self.0.lock().unwrap();
        if std::mem::take(&mut script.acting) {
            script.came.push(Came::of(&event));
        }
        let next = script.actions.pop_front();
        script.acting = next.is_some();
        next.unwrap_or(Action::Wait(Duration::from_millis(1)))
    }
}

pub(crate) async fn world() -> (Arc<MemoryStore>, Arc<dyn Store>) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    (memory, store)
}

/// A producer that commits what its test tells it to; it has committed one TGB.
pub(crate) async fn told(store: &Arc<dyn Store>, name: &str, seed: u8) -> (Told, CommitQueue) {
    let policy = Told::default();
    let producer = opened(store, name, seed).await;
    let first = item(&producer, 0, 1);
    let queue = producer.spawn(policy.clone(), CommitOptions::default());
    assert!(queue.submit(first).await);
    // The commit task asks nothing before it has something.
    let came = policy.does(&[LOOK, PUT_ALL]).await;
    assert_eq!(came.last(), Some(&Came::Won));
    (policy, queue)
}

/// What `told` has committed.
pub(crate) fn first() -> (String, u64) {
    ("leader".to_owned(), 0)
}

pub(crate) fn intents_in(memory: &MemoryStore) -> Vec<String> {
    let mut keys = memory.keys();
    keys.retain(|key| key.starts_with(keys::INTENTS));
    keys
}
