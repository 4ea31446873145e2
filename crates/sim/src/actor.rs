//! One process of the simulated world: it can be slow, freeze (all that it waits for comes late)
//! or die at any request (nothing that it waits for comes ever). What it has sent goes on.

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
    /// Before it is sent.
    Before,
    /// When it is on its way.
    Sent,
    /// When its answer has come, before anything is done with it.
    Answered,
}

/// How an actor differs from others.
#[derive(Debug, Clone)]
pub struct Nature {
    /// How many times slower than others its requests are.
    pub slow: f64,
    /// Its clock.
    pub skew: Skew,
    /// It dies at this request, counted from 1.
    pub dies: Option<(u64, Moment)>,
    /// It freezes before these requests, for so long.
    pub stalls: Vec<(u64, Duration)>,
    /// The store refuses its ledgers from the first of these times to the second.
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
    /// The answer to a request that the store refuses this actor now.
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
    /// Reads under way by class of keys.
    reads: BTreeMap<&'static str, u32>,
}

/// A process.
#[derive(Debug)]
pub struct Actor {
    /// Its number in the trace.
    pub id: u32,
    /// Its name for people.
    pub name: String,
    /// What it is like.
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

    /// Freezes it until `until`.
    pub fn freeze(&self, until: Duration) {
        let mut state = self.state();
        state.frozen_until = state.frozen_until.max(until);
    }

    /// Kills it.
    pub fn kill(&self) {
        self.state().dead = true;
        self.died.notify_one();
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Waits for its death.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    pub(crate) fn draw<T>(&self, with: impl FnOnce(&mut Draw) -> T) -> T {
        with(&mut self.state().draw)
    }

    /// Every wait of the process ends here: late if it is frozen, never if it is dead.
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

    /// A read goes out; true when another of the same class is under way.
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

    /// Counts a request; its number within the actor.
    pub(crate) fn count(&self) -> u64 {
        let mut state = self.state();
        state.requests += 1;
        state.requests
    }

    /// Dies if this is the moment; then waits to be awake.
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

    /// What its clock shows.
    pub fn now(&self) -> Duration {
        self.nature.skew.shows(self.time.now())
    }

    /// Waits by its own clock.
    pub async fn sleep(&self, time: Duration) {
        if !time.is_zero() {
            // At least one unit, or rounding could keep somebody from ever getting there.
            let at = self.nature.skew.reaches(self.now() + time);
            let at = at.max(self.time.now() + UNIT);
            self.time.sleep_until(at).await;
        }
        self.awake().await;
    }

    /// Its clock as the log takes it.
    pub fn clock(self: &Arc<Self>) -> Arc<dyn Clock> {
        Arc::new(ActorClock(Arc::clone(self)))
    }
}

/// All actors of a world, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Actors(Vec<(String, Weak<Actor>)>);

impl Actors {
    /// Adds the one that `new` makes with its number.
    pub(crate) fn add(&mut self, new: impl FnOnce(u32) -> Actor) -> Arc<Actor> {
        let actor = Arc::new(new(self.0.len() as u32 + 1));
        self.0.push((actor.name.clone(), Arc::downgrade(&actor)));
        actor
    }

    /// The name of actor n at n - 1.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The names of those that somebody still has and that have not died.
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
