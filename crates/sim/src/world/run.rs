//! Runs a plan and brings home the evidence for the checks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchweave_core::ids::{Epoch, Hash, ProducerName, RequestId, Seq, Step, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Sealed;
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::Digest;
use batchweave_log::LogError;
use bytes::Bytes;

use super::content::SLICES;
use super::faulty::spoil;
use super::operator::operate;
use super::plan::Plan;
use super::reader::Reader;
use super::supervisor::supervise;
use crate::actor::Nature;
use crate::check::Violation;
use crate::life::person::Person;
use crate::life::{self, Marked, Received, Session};
use crate::profile::Profile;
use crate::store::{KEY_BYTES_MAX, Keep, Landed, Settings, SimStore};
use crate::time::{Timeline, run as run_time};
use crate::trace::Event;

/// A world that has not ended by then never will.
const HORIZON: Duration = Duration::from_hours(24);

/// One step as a reader saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Whose TGB.
    pub producer: ProducerName,
    /// Which.
    pub seq: Seq,
    /// Committed in which epoch.
    pub epoch: Epoch,
    /// By which record.
    pub version: Version,
    /// What is in it.
    pub digest: Digest,
    /// How far the reader had folded.
    pub head: Version,
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Evidence {
    /// What was to happen.
    pub plan: Plan,
    /// The stream.
    pub stream: StreamConfig,
    /// Its bytes.
    pub stream_json: Bytes,
    /// The store at the end.
    pub objects: BTreeMap<Arc<str>, Bytes>,
    /// All objects that ever were, in order.
    pub landed: Vec<Landed>,
    /// All that happened.
    pub events: Vec<Event>,
    /// Names of the actors; actor n is name n - 1.
    pub actors: Vec<String>,
    /// What each reader saw.
    pub reads: Vec<Vec<Read>>,
    /// The next sequence that each producer's process was told of, by number of the producer.
    pub acknowledged: BTreeMap<u32, Seq>,
    /// Sessions of ranks with their daemons, in order.
    pub sessions: Vec<Session>,
    /// What each rank received, in its order.
    pub received: Vec<Received>,
    /// Marks of which ranks were told that they are stored.
    pub marked: Vec<Marked>,
    /// What the actors found themselves.
    pub found: Vec<Violation>,
    /// Fingerprint of the run.
    pub hash: u64,
    /// Requests made.
    pub requests: u64,
    /// The time it took, virtually.
    pub lasted: Duration,
}

impl Evidence {
    /// The name of an actor, for people.
    pub fn actor(&self, id: u32) -> &str {
        let index = id.checked_sub(1).map(|i| i as usize);
        let name = index.and_then(|i| self.actors.get(i));
        name.map_or("nobody in particular", String::as_str)
    }
}

/// What all actors of a world share.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) store: Arc<SimStore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: bool,
    trained: bool,
    acknowledged: BTreeMap<u32, Seq>,
    end: Option<Step>,
    sessions: Vec<Session>,
    received: Vec<Received>,
    marked: Vec<Marked>,
    found: Vec<Violation>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether this is what the world's store or its faulty program did: the same may work later.
    pub(crate) fn may_pass(&self, error: &LogError) -> bool {
        match error {
            LogError::Store(_) => true,
            LogError::Fold(error) => self.plan.stops() && error.may_be_repaired(),
            _ => false,
        }
    }

    /// The stream's id.
    pub(crate) fn stream_id(&self) -> StreamId {
        stream_id(self.plan.seed)
    }

    /// Whether all input is committed.
    pub(crate) fn done(&self) -> bool {
        self.state().done
    }

    /// Whether all jobs have read what they were to read.
    pub(crate) fn trained(&self) -> bool {
        self.state().trained
    }

    pub(crate) fn set_trained(&self) {
        self.state().trained = true;
    }

    /// The first step that never comes, once all input is committed and counted.
    pub(crate) fn end(&self) -> Option<Step> {
        self.state().end
    }

    pub(crate) fn set_end(&self, end: Step) {
        self.state().end = Some(end);
    }

    /// A rank was let in; its session's place among all.
    pub(crate) fn session(&self, session: Session) -> usize {
        let mut state = self.state();
        state.sessions.push(session);
        state.sessions.len() - 1
    }

    /// A rank was told that its mark is stored.
    pub(crate) fn marked(&self, marked: Marked) {
        self.state().marked.push(marked);
    }

    /// A rank has received a step.
    pub(crate) fn received(&self, step: Received) {
        self.state().received.push(step);
    }
}

/// The name of producer `number`.
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

/// The stream of a run.
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
    }
}

/// Runs the plan to its end.
pub fn run(plan: &Plan) -> std::io::Result<Evidence> {
    run_time(|time| world(plan.clone(), time))
}

async fn world(plan: Plan, time: Timeline) -> Evidence {
    let settings = Settings {
        seed: plan.seed,
        profile: Profile::named(&plan.profile).unwrap_or(Profile::STANDARD),
        rates: plan.rates,
        link: plan.link,
        calm_at: plan.calm_at,
        // Intents in keys, or objects that are read.
        key_bytes_max: if plan.seed.is_multiple_of(2) {
            255
        } else {
            KEY_BYTES_MAX
        },
        keep: Keep::All,
    };
    let named = plan.producers.iter().filter(|_| plan.named);
    let named = named.map(|p| name(p.number)).collect();
    let stream = stream(plan.seed, plan.order, named);
    let stream_json = Bytes::from(stream.to_json());
    let store = SimStore::new(time, settings);
    store.put_now(keys::STREAM, stream_json.clone());
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        store: Arc::clone(&store),
        state: Mutex::default(),
    });
    let reads = tokio::select! {
        biased;
        reads = everybody(Arc::clone(&shared)) => reads,
        () = time.sleep_until(HORIZON) => {
            let living = store.living().join(", ");
            let text = format!("not at its end after {HORIZON:?}; still there: {living}");
            shared.found("stuck", 0, text);
            Vec::new()
        }
    };
    let (events, actors) = store.take_events();
    let mut state = shared.state();
    Evidence {
        stream,
        stream_json,
        objects: store.objects(),
        landed: store.landed(),
        events,
        actors,
        reads,
        sessions: std::mem::take(&mut state.sessions),
        received: std::mem::take(&mut state.received),
        marked: std::mem::take(&mut state.marked),
        acknowledged: std::mem::take(&mut state.acknowledged),
        found: std::mem::take(&mut state.found),
        hash: store.hash(),
        requests: store.requests(),
        lasted: time.now(),
        plan,
    }
}

async fn everybody(shared: Arc<Shared>) -> Vec<Vec<Read>> {
    let plan = &shared.plan;
    let producers: Vec<_> = plan
        .producers
        .iter()
        .map(|p| tokio::spawn(supervise(Arc::clone(&shared), p.clone())))
        .collect();
    let readers: Vec<_> = plan
        .readers
        .iter()
        .map(|r| {
            let actor = shared
                .store
                .actor(&format!("r{}", r.number), Nature::default());
            let reader = Reader {
                shared: Arc::clone(&shared),
                plan: r.clone(),
                store: shared.store.handle(&actor),
                actor,
            };
            tokio::spawn(reader.run())
        })
        .collect();
    let life = plan.life.as_ref();
    let life = life.map(|life| tokio::spawn(life::run(Arc::clone(&shared), life.clone())));
    let operator = tokio::spawn(operate(Arc::clone(&shared)));
    let faulty = tokio::spawn(spoil(Arc::clone(&shared)));
    if let Some(at) = plan.sealed_at {
        seal(&shared, at).await;
    }
    for task in producers.into_iter().chain([operator, faulty]) {
        if let Err(e) = task.await {
            shared.found("panic", 0, e.to_string());
        }
    }
    shared.state().done = true;
    let mut reads = Vec::new();
    for reader in readers {
        match reader.await {
            Ok(read) => reads.push(read),
            Err(e) => shared.found("panic", 0, e.to_string()),
        }
    }
    if let Some(life) = life {
        if let Err(e) = life.await {
            shared.found("panic", 0, e.to_string());
        }
        life::quiet(&shared).await;
    }
    reads
}

/// A person seals the stream for good, trying again until it is done.
async fn seal(shared: &Arc<Shared>, at: Duration) {
    let person = Person::new(shared, "sealer");
    shared.store.time.sleep_until(at).await;
    let sealed = Sealed {
        request: RequestId(person.bytes()),
        reason: "enough".into(),
    };
    person.commit(|_| Entry::Sealed(sealed.clone())).await;
    shared.store.note(&person.actor, "sealed the stream");
}
