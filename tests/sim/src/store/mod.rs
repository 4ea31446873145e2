//! The simulated object store.
//!
//! A write takes effect at a random instant between request and answer, on its own task, because its
//! sender may be frozen, dead or timed out by then.
//!
//! - `settings`: the behaviour of a store; `handle`: the store as one actor sees it; `outcome`: the effect and answer of one request;
//! - `profile`: latencies; `throttle`: request limits; `busy`: reads per key;
//! - `link`: slow transfers and wrong reads; `manifest`: the time of versions that are not records of changes.

pub(crate) mod busy;
mod handle;
pub mod link;
pub mod manifest;
pub mod outcome;
pub mod profile;
pub mod settings;
pub(crate) mod throttle;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_core::keys;
use batchweave_core::manifest::Record;
use batchweave_store::{Effect, ErrorKind, ListPage, ObjectMeta, Op, StoreError};
use bytes::Bytes;

use self::busy::{Busy, Second};
use self::manifest::ManifestKind;
use self::outcome::{Outcome, Rates};
use self::settings::{Keep, Settings};
use self::throttle::{Throttle, class};
use crate::actor::{Actor, Actors, Nature};
use crate::draw::Draw;
use crate::time::Timeline;
use crate::trace::{Answer, Event, Trace, What, fnv};

/// The root in messages.
pub(crate) const ROOT: &str = "sim://store";

/// The number of keys in one page of a listing.
const PAGE_KEYS: usize = 1000;

/// An object at its creation.
#[derive(Debug, Clone)]
pub struct Landed {
    pub at: Duration,
    /// The actor that sent it.
    pub actor: u32,
    pub key: Arc<str>,
    pub body: Bytes,
}

/// The number of requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub http: u64,
    /// The same, but reads of one actor in parallel count once.
    pub windows: u64,
}

/// Requests by operation and class of keys.
pub type Counts = BTreeMap<(&'static str, &'static str), Count>;

struct Inner {
    objects: BTreeMap<Arc<str>, Bytes>,
    landed: Vec<Landed>,
    trace: Trace,
    throttle: Throttle,
    busy: Option<Busy>,
    requests: u64,
    throttled: u64,
    counts: Counts,
    /// Entries in the records of the log.
    entries: u64,
    actors: Actors,
}

/// The store, which also records the trace and creates the actors.
pub struct SimStore {
    pub(crate) time: Timeline,
    pub(crate) settings: Settings,
    inner: Mutex<Inner>,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({} objects)", self.inner().objects.len())
    }
}

/// A request in flight.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) key: Arc<str>,
    pub(crate) outcome: Outcome,
    pub(crate) sent: Duration,
}

impl SimStore {
    /// Creates an empty store.
    pub fn new(time: Timeline, settings: Settings) -> Arc<Self> {
        let inner = Inner {
            objects: BTreeMap::new(),
            landed: Vec::new(),
            trace: Trace::new(settings.keep == Keep::All),
            throttle: Throttle::new(settings.profile.limits()),
            busy: None,
            requests: 0,
            throttled: 0,
            counts: Counts::new(),
            entries: 0,
            actors: Actors::default(),
        };
        Arc::new(Self {
            time,
            settings,
            inner: Mutex::new(inner),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an actor of this name.
    pub fn actor(&self, name: &str, nature: Nature) -> Arc<Actor> {
        // Seeded by name, not by number: an actor draws the same when another is removed from the
        // world.
        let draw = Draw::new(self.settings.seed, name, 0);
        let new = |id| Actor::new(id, name.to_owned(), nature, self.time, draw);
        self.inner().actors.add(new)
    }

    pub(crate) fn living(&self) -> Vec<String> {
        self.inner().actors.living()
    }

    /// Stores an object before the world begins.
    pub fn put_now(&self, key: &str, body: Bytes) {
        self.inner().objects.insert(key.into(), body);
    }

    /// Returns the objects by key, as they are now.
    pub fn objects(&self) -> BTreeMap<Arc<str>, Bytes> {
        self.inner().objects.clone()
    }

    /// Returns the first result of `pick` over all created objects, newest first.
    pub fn newest_landed<T>(&self, pick: impl FnMut(&Landed) -> Option<T>) -> Option<T> {
        self.inner().landed.iter().rev().find_map(pick)
    }

    /// Returns every object that was ever created, in order.
    pub fn landed(&self) -> Vec<Landed> {
        self.inner().landed.clone()
    }

    /// Returns the run's fingerprint until now.
    pub fn hash(&self) -> u64 {
        self.inner().trace.hash()
    }

    /// Returns the number of requests until now.
    pub fn requests(&self) -> u64 {
        self.inner().requests
    }

    /// Applies the request limits and counts reads of single keys from now on.
    pub(crate) fn limits_begin(&self) {
        let mut inner = self.inner();
        inner.throttle = Throttle::new(self.settings.profile.limits());
        inner.busy = Some(Busy::default());
    }

    /// Suspends the request limits.
    pub(crate) fn lift_limits(&self) {
        self.inner().throttle = Throttle::new(throttle::NONE);
    }

    /// Returns the reads of keys and prefixes, second by second.
    pub(crate) fn reads_by_second(&self) -> Vec<Second> {
        let busy = self.inner().busy.as_mut().map(Busy::by_second);
        busy.unwrap_or_default()
    }

    /// Returns the number of requests answered 503 because of the limits.
    pub fn throttled(&self) -> u64 {
        self.inner().throttled
    }

    /// Returns the requests until now by operation and prefix.
    pub fn counts(&self) -> Counts {
        self.inner().counts.clone()
    }

    /// Returns the kept events and the names of the actors; actor n has the name n - 1.
    pub fn take_events(&self) -> (Vec<Event>, Vec<String>) {
        let mut inner = self.inner();
        (inner.trace.take(), inner.actors.names())
    }

    /// Records an event that is not a request.
    pub fn note(&self, actor: &Actor, text: impl Into<String>) {
        self.record(actor, 0, Op::Open, &Arc::from(""), What::Note(text.into()));
    }

    pub(crate) fn record(&self, actor: &Actor, request: u64, op: Op, key: &Arc<str>, what: What) {
        let (at, actor, key) = (self.time.now(), actor.id, Arc::clone(key));
        let event = Event {
            at,
            actor,
            request,
            op,
            key,
            what,
        };
        self.inner().trace.push(event);
    }

    /// Sends a request: counts it, records it and draws its outcome.
    pub(crate) fn send(&self, actor: &Actor, op: Op, key: &str, body: &Bytes) -> Request {
        let now = self.time.now();
        let calm = now >= self.settings.calm_at;
        let rates = if calm {
            Rates::default()
        } else {
            self.settings.rates
        };
        let mut outcome = actor.draw(|draw| {
            let latency = self.settings.profile.draw(op, draw);
            outcome::draw(op, latency.mul_f64(actor.nature.slow), &rates, draw)
        });
        // Clients wait longer for a larger body, so that a slow link alone causes no failure.
        let manifest = self.settings.manifest;
        let carried =
            self.settings.link.takes(body.len()) + manifest.takes(op, key, self.inner().entries);
        outcome.effect = outcome.effect.map(|after| after + carried);
        outcome.answer += carried;
        let key: Arc<str> = key.into();
        let id = self.count(actor, op, &key, &mut outcome);
        let (bytes, print) = (body.len() as u32, fnv(body));
        self.record(actor, id, op, &key, What::Sent { print, bytes });
        Request {
            id,
            op,
            key,
            outcome,
            sent: now,
        }
    }

    /// Counts a request and applies the refusals and limits of this time to its outcome.
    fn count(&self, actor: &Actor, op: Op, key: &Arc<str>, outcome: &mut Outcome) -> u64 {
        let now = self.time.now();
        let mut inner = self.inner();
        inner.requests += 1;
        let class = class(key);
        let beside = op == Op::Get && actor.begins_read(class);
        let count = inner.counts.entry((op.name(), class)).or_default();
        count.http += 1;
        count.windows += u64::from(!beside);
        if let Some(busy) = &mut inner.busy {
            busy.note(op, key, now);
        }
        if let Some(reply) = actor.nature.refusal(op, key, now) {
            (outcome.effect, outcome.reply) = (None, reply);
        }
        if !inner.throttle.admits(op, key, now) {
            let effect = match op {
                Op::Create | Op::Upload | Op::Delete => Effect::Unknown,
                _ => Effect::DidNot,
            };
            inner.throttled += 1;
            outcome.effect = None;
            outcome.reply = outcome::Reply::Fail(ErrorKind::Throttled, effect, "HTTP 503 SlowDown");
        }
        inner.requests
    }

    /// Applies a put. Returns the object that existed before, if any.
    pub(crate) fn land(&self, actor: &Actor, request: &Request, body: &Bytes) -> Option<Bytes> {
        let there = {
            let mut inner = self.inner();
            let there = inner.objects.get(&request.key).cloned();
            if there.is_none() {
                inner.objects.insert(Arc::clone(&request.key), body.clone());
                if self.settings.keep == Keep::All || request.key.starts_with(keys::LOG) {
                    if self.settings.manifest.kind != ManifestKind::Delta {
                        let record = Record::from_json(body, 0);
                        inner.entries += record.map_or(0, |record| record.entries.len() as u64);
                    }
                    inner.landed.push(Landed {
                        at: self.time.now(),
                        actor: actor.id,
                        key: Arc::clone(&request.key),
                        body: body.clone(),
                    });
                }
            }
            there
        };
        let created = there.is_none();
        let what = What::Landed { created };
        self.record(actor, request.id, request.op, &request.key, what);
        there
    }

    pub(crate) fn remove(&self, actor: &Actor, request: u64, key: &Arc<str>) {
        let created = self.inner().objects.remove(key).is_some();
        self.record(actor, request, Op::Delete, key, What::Landed { created });
    }

    /// Splits the keys of a bulk delete into those refused with their own errors and the others.
    /// The first key stands for the request in the trace; the others are recorded beside it.
    pub(crate) fn refuse_some(
        &self,
        actor: &Actor,
        request: &Request,
        keys: &[String],
    ) -> (Vec<(String, StoreError)>, Vec<Arc<str>>) {
        let calm = self.time.now() >= self.settings.calm_at;
        let rate = if calm { 0 } else { self.settings.rates.server };
        let (mut refused, mut gone) = (Vec::new(), Vec::new());
        for key in keys {
            let shared: Arc<str> = key.as_str().into();
            if shared != request.key {
                let what = What::Sent { print: 0, bytes: 0 };
                self.record(actor, request.id, Op::Delete, &shared, what);
            }
            if actor.draw(|draw| draw.chance(rate)) {
                let (kind, effect) = (ErrorKind::Server, Effect::Unknown);
                let location = format!("{ROOT}/{key}");
                let error = StoreError::new(Op::Delete, location, kind, effect, "InternalError");
                refused.push((key.clone(), error));
            } else {
                gone.push(shared);
            }
        }
        (refused, gone)
    }

    pub(crate) fn find(&self, key: &str) -> Option<Bytes> {
        self.inner().objects.get(key).cloned()
    }

    /// Returns one page of keys and sizes below `prefix`, shuffled, as the contract promises no
    /// order.
    pub(crate) fn list(&self, actor: &Actor, prefix: &str, page: Option<&str>) -> ListPage {
        let after = match page {
            Some(last) => Bound::Excluded(last),
            None => Bound::Included(prefix),
        };
        let inner = self.inner();
        let mut found = inner
            .objects
            .range::<str, _>((after, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, body)| ObjectMeta::new(key.to_string(), body.len() as u64));
        let mut objects: Vec<_> = found.by_ref().take(PAGE_KEYS).collect();
        let more = found.next().is_some();
        let next = objects.last().filter(|_| more).map(|last| last.key.clone());
        actor.draw(|draw| {
            for i in (1..objects.len()).rev() {
                objects.swap(i, draw.range(0..i as u64 + 1) as usize);
            }
        });
        ListPage { objects, next }
    }

    pub(crate) fn answered(&self, actor: &Actor, request: &Request, answer: Answer) {
        if request.op == Op::Get {
            actor.ends_read(class(&request.key));
        }
        let what = What::Answered(answer);
        self.record(actor, request.id, request.op, &request.key, what);
    }

    pub(crate) fn error(
        request: &Request,
        kind: ErrorKind,
        effect: Effect,
        text: &str,
    ) -> StoreError {
        let location = format!("{ROOT}/{}", request.key);
        StoreError::new(request.op, location, kind, effect, text)
    }
}
