//! One process of the simulated world. It can be slow, freeze (its answers and timers are late) or die
//! at any request (they never arrive). Requests that it has sent still take effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use batchweave_log::Clock;
use batchweave_store::{Effect, ErrorKind, Op};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::clock::Skew;
use crate::draw::Draw;
use crate::store::outcome::Reply;
use crate::time::{Timeline, UNIT};

/// The points of a request at which a process can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// Before the request is sent.
    Before,
    /// While the request is in flight.
    Sent,
    /// When the answer has arrived, before the process uses it.
    Answered,
}

/// The properties of an actor.
#[derive(Debug, Clone)]
pub struct Nature {
    /// The factor by which its requests are slower than those of others.
    pub slow: f64,
    pub skew: Skew,
    /// The request at which it dies, counted from 1.
    pub dies: Option<(u64, Moment)>,
    /// The requests before which it freezes, and the duration of each freeze.
    pub stalls: Vec<(u64, Duration)>,
    /// The interval in which the store refuses its ledgers.
    pub refused: Option<(Duration, Duration)>,
}

impl Default for Nature {
    fn default() -> Self {
        Self {
            slow: 1.0,
            skew: Skew::default(),
            dies: None,
            stalls: Vec::new(),
            refused: None,
        }
    }
}

impl Nature {
    /// Returns the answer to a request that the store refuses this actor now.
    pub(crate) fn refusal(&self, op: Op, key: &str, now: Duration) -> Option<Reply> {
        let (from, to) = self.refused?;
        let refused = op == Op::Create && key.contains("/ledger/") && (from..to).contains(&now);
        let (kind, effect) = (ErrorKind::Denied, Effect::DidNot);
        refused.then_some(Reply::Fail(kind, effect, "HTTP 403 AccessDenied"))
    }
}

#[derive(Debug)]
struct State {
    dead: bool,
    frozen_until: Duration,
    requests: u64,
    draw: Draw,
    /// The reads in progress, by class of keys.
    reads: BTreeMap<&'static str, u32>,
}

/// A process of the simulated world.
#[derive(Debug)]
pub struct Actor {
    pub id: u32,
    /// The name in traces and stories.
    pub name: String,
    pub nature: Nature,
    time: Timeline,
    state: Mutex<State>,
    died: Notify,
}

impl Actor {
    pub(crate) fn new(id: u32, name: String, nature: Nature, time: Timeline, draw: Draw) -> Self {
        Self {
            id,
            name,
            nature,
            time,
            state: Mutex::new(State {
                dead: false,
                frozen_until: Duration::ZERO,
                requests: 0,
                draw,
                reads: BTreeMap::new(),
            }),
            died: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Freezes the actor until `until`.
    pub fn freeze(&self, until: Duration) {
        let mut state = self.state();
        state.frozen_until = state.frozen_until.max(until);
    }

    /// Kills the actor immediately.
    pub fn kill(&self) {
        self.state().dead = true;
        self.died.notify_one();
    }

    /// Returns true if the actor is dead.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Waits until the actor dies.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    pub(crate) fn draw<T>(&self, with: impl FnOnce(&mut Draw) -> T) -> T {
        with(&mut self.state().draw)
    }

    /// Ends every wait of the process: late if it is frozen, never if it is dead.
    pub(crate) async fn awake(&self) {
        loop {
            let until = {
                let state = self.state();
                (!state.dead).then_some(state.frozen_until)
            };
            match until {
                None => std::future::pending().await,
                Some(until) if until <= self.time.now() => return,
                Some(until) => self.time.sleep_until(until).await,
            }
        }
    }

    /// Counts a read that is sent. Returns true if another of the same class is in progress.
    pub(crate) fn begins_read(&self, class: &'static str) -> bool {
        let mut state = self.state();
        let reads = state.reads.entry(class).or_default();
        *reads += 1;
        *reads > 1
    }

    pub(crate) fn ends_read(&self, class: &str) {
        if let Some(reads) = self.state().reads.get_mut(class) {
            *reads = reads.saturating_sub(1);
        }
    }

    /// Counts a request. Returns its number within the actor.
    pub(crate) fn count(&self) -> u64 {
        let mut state = self.state();
        state.requests += 1;
        state.requests
    }

    /// Dies if this is the planned moment; then waits until the actor is awake.
    pub(crate) async fn pass(&self, request: u64, moment: Moment) {
        if self.nature.dies == Some((request, moment)) && !self.is_dead() {
            self.kill();
        }
        let stall = self.nature.stalls.iter().find(|(at, _)| *at == request);
        if let Some((_, lasts)) = stall.filter(|_| moment == Moment::Before) {
            self.freeze(self.time.now() + *lasts);
        }
        self.awake().await;
    }

    /// Returns the time of the actor's clock.
    pub fn now(&self) -> Duration {
        self.nature.skew.shows(self.time.now())
    }

    /// Waits by the actor's clock.
    pub async fn sleep(&self, time: Duration) {
        if !time.is_zero() {
            // At least one unit: rounding could otherwise keep the wait from ever ending.
            let at = self
                .nature
                .skew
                .reaches(self.now() + time)
                .max(self.time.now() + UNIT);
            self.time.sleep_until(at).await;
        }
        self.awake().await;
    }

    /// Returns the actor's clock for the log.
    pub fn clock(self: &Arc<Self>) -> Arc<dyn Clock> {
        Arc::new(ActorClock(Arc::clone(self)))
    }
}

/// All actors of a world, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Actors(Vec<(String, Weak<Actor>)>);

impl Actors {
    /// Adds the actor that `new` makes with its number.
    pub(crate) fn add(&mut self, new: impl FnOnce(u32) -> Actor) -> Arc<Actor> {
        let actor = Arc::new(new(self.0.len() as u32 + 1));
        self.0.push((actor.name.clone(), Arc::downgrade(&actor)));
        actor
    }

    /// Returns the names; actor n has the name n - 1.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names of the actors that are in use and have not died.
    pub(crate) fn living(&self) -> Vec<String> {
        let all = self.0.iter().filter_map(|(_, actor)| actor.upgrade());
        let living = all.filter(|actor| !actor.is_dead());
        living.map(|actor| actor.name.clone()).collect()
    }
}

#[derive(Debug)]
struct ActorClock(Arc<Actor>);

impl Clock for ActorClock {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let actor = Arc::clone(&self.0);
        async move { actor.sleep(time).await }.boxed()
    }
}
