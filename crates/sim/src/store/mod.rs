//! The simulated object store. A write takes effect at a random instant between request and
//! answer, on a task of its own: whoever sent it may be frozen, dead, or tired of waiting by then.

mod busy;
mod handle;
pub mod link;
pub mod outcome;
pub mod profile;
pub(crate) mod throttle;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_core::keys;
use batchweave_store::{Effect, ErrorKind, ListPage, ObjectMeta, Op, StoreError};
use bytes::Bytes;

use self::busy::Busy;
use self::link::LinkPlan;

use self::outcome::{Outcome, Rates};
use self::profile::Profile;
use self::throttle::{Throttle, class};
use crate::actor::{Actor, Actors, Nature};
use crate::draw::Draw;
use crate::time::Timeline;
use crate::trace::{Answer, Event, Trace, What, fnv};

/// The root in messages.
pub(crate) const ROOT: &str = "sim://store";

/// Keys in one page of a listing.
const PAGE_KEYS: usize = 1000;

/// How much of a run is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Every event and object.
    All,
    /// Log records, counts, and the hash over everything.
    Records,
}

/// How a store behaves.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Feeds everything that is random.
    pub seed: u64,
    /// Latencies.
    pub profile: Profile,
    /// Faults.
    pub rates: Rates,
    /// Slow and lying links.
    pub link: LinkPlan,
    /// No faults from then on.
    pub calm_at: Duration,
    /// What to keep.
    pub keep: Keep,
    /// The longest key; intents ride in keys that are long enough.
    pub key_bytes_max: usize,
}

/// S3's 1,024 bytes less a usual prefix.
pub(crate) const KEY_BYTES_MAX: usize = 960;

/// An object at the moment it came to be.
#[derive(Debug, Clone)]
pub struct Landed {
    /// When.
    pub at: Duration,
    /// Who had sent it.
    pub actor: u32,
    /// Its key.
    pub key: Arc<str>,
    /// Its bytes.
    pub body: Bytes,
}

/// Requests of one kind: all, and with those that went out beside another of the same actor and
/// kind counted as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Every request.
    pub http: u64,
    /// A parallel window of reads counts once.
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
    actors: Actors,
}

/// The store, the recorder of all that happens in it, and the maker of actors.
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

/// A request on its way.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) key: Arc<str>,
    pub(crate) outcome: Outcome,
    pub(crate) sent: Duration,
}

impl SimStore {
    /// An empty store.
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

    /// A new actor.
    pub fn actor(&self, name: &str, nature: Nature) -> Arc<Actor> {
        // By name, not by number: an actor draws the same when another is taken out of the world.
        let draw = Draw::new(self.settings.seed, name, 0);
        let new = |id| Actor::new(id, name.to_owned(), nature, self.time, draw);
        self.inner().actors.add(new)
    }

    pub(crate) fn living(&self) -> Vec<String> {
        self.inner().actors.living()
    }

    /// Puts an object there before the world begins.
    pub fn put_now(&self, key: &str, body: Bytes) {
        self.inner().objects.insert(key.into(), body);
    }

    /// Objects by key, as they are now.
    pub fn objects(&self) -> BTreeMap<Arc<str>, Bytes> {
        self.inner().objects.clone()
    }

    /// The newest object for which `pick` has an answer.
    pub fn newest_landed<T>(&self, pick: impl FnMut(&Landed) -> Option<T>) -> Option<T> {
        self.inner().landed.iter().rev().find_map(pick)
    }

    /// Every object that ever came to be, in order.
    pub fn landed(&self) -> Vec<Landed> {
        self.inner().landed.clone()
    }

    /// The run's fingerprint so far.
    pub fn hash(&self) -> u64 {
        self.inner().trace.hash()
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.inner().requests
    }

    /// Limits hold, and reads of single keys are counted, from now on.
    pub(crate) fn limits_begin(&self) {
        let mut inner = self.inner();
        inner.throttle = Throttle::new(self.settings.profile.limits());
        inner.busy = Some(Busy::default());
    }

    /// Until then nothing is too much.
    pub(crate) fn lift_limits(&self) {
        self.inner().throttle = Throttle::new(throttle::NONE);
    }

    /// Reads of the busiest key, second by second.
    pub(crate) fn busiest_reads(&self) -> Vec<u64> {
        let busy = self.inner().busy.as_mut().map(Busy::by_second);
        busy.unwrap_or_default()
    }

    /// Requests so far that were too many: answered 503.
    pub fn throttled(&self) -> u64 {
        self.inner().throttled
    }

    /// Requests so far by operation and prefix.
    pub fn counts(&self) -> Counts {
        self.inner().counts.clone()
    }

    /// The events kept, and the names of the actors; actor n is name n - 1.
    pub fn take_events(&self) -> (Vec<Event>, Vec<String>) {
        let mut inner = self.inner();
        (inner.trace.take(), inner.actors.names())
    }

    /// Records something that is no request.
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

    /// A request leaves: it is counted, recorded and gets its outcome.
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
        // Clients wait longer for a larger body, so that a slow link alone fails nothing.
        let carried = self.settings.link.takes(body.len());
        outcome.effect = outcome.effect.map(|after| after + carried);
        outcome.answer += carried;
        let key: Arc<str> = key.into();
        let id = {
            let mut inner = self.inner();
            inner.requests += 1;
            let class = class(&key);
            let beside = op == Op::Get && actor.begins_read(class);
            let count = inner.counts.entry((op.name(), class)).or_default();
            count.http += 1;
            count.windows += u64::from(!beside);
            if let Some(busy) = &mut inner.busy {
                busy.note(op, &key, now);
            }
            if let Some(reply) = actor.nature.refusal(op, &key, now) {
                (outcome.effect, outcome.reply) = (None, reply);
            }
            if !inner.throttle.admits(op, &key, now) {
                let effect = match op {
                    Op::Create | Op::Upload | Op::Delete => Effect::Unknown,
                    _ => Effect::DidNot,
                };
                inner.throttled += 1;
                outcome.effect = None;
                outcome.reply =
                    outcome::Reply::Fail(ErrorKind::Throttled, effect, "HTTP 503 SlowDown");
            }
            inner.requests
        };
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

    /// A put takes effect: what was there before, if anything.
    pub(crate) fn land(&self, actor: &Actor, request: &Request, body: &Bytes) -> Option<Bytes> {
        let there = {
            let mut inner = self.inner();
            let there = inner.objects.get(&request.key).cloned();
            if there.is_none() {
                inner.objects.insert(Arc::clone(&request.key), body.clone());
                if self.settings.keep == Keep::All || request.key.starts_with(keys::LOG) {
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

    /// Which keys of a bulk delete are refused for reasons of their own, and the others. The first
    /// key stands for the request in the trace; the others are told beside it.
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

    /// One page of keys and sizes below `prefix`, shuffled: no order is promised.
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
            .map(|(key, body)| ObjectMeta {
                key: key.to_string(),
                size: body.len() as u64,
                etag: None,
            });
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
