//! Runs a plan and collects the evidence for the checks.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::RequestId;
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Sealed;
use batchweave_core::stream::StreamConfig;
use bytes::Bytes;
use tokio::task::{JoinError, JoinHandle};

use super::faulty::spoil;
use super::operator::operate;
use super::person::Person;
use super::reader::Reader;
use super::shared::{Shared, name, stream};
use super::supervisor::supervise;
use crate::actor::Nature;
use crate::evidence::{Evidence, Read};
use crate::lifecycle;
use crate::plan::{Plan, ReaderPlan};
use crate::store::SimStore;
use crate::store::manifest::ManifestPlan;
use crate::store::profile::Profile;
use crate::store::settings::{KEY_BYTES_MAX, Keep, SHORT_KEY_BYTES_MAX, Settings};
use crate::time::{Timeline, run as run_time};

/// The limit of virtual time, after which a world counts as stuck.
const HORIZON: Duration = Duration::from_hours(24);

/// Runs the plan to its end.
pub fn run(plan: &Plan) -> std::io::Result<Evidence> {
    run_time(|time| world(plan.clone(), time))
}

fn settings(plan: &Plan) -> Settings {
    Settings {
        seed: plan.seed,
        profile: Profile::named(&plan.profile).unwrap_or(Profile::STANDARD),
        rates: plan.rates,
        link: plan.link,
        calm_at: plan.calm_at,
        // Short keys force intents into objects that are read.
        key_bytes_max: if plan.seed.is_multiple_of(2) {
            SHORT_KEY_BYTES_MAX
        } else {
            KEY_BYTES_MAX
        },
        keep: Keep::All,
        manifest: ManifestPlan::default(),
    }
}

/// Returns the stream of the world, which may name its producers.
fn stream_of(plan: &Plan) -> StreamConfig {
    let named = plan
        .producers
        .iter()
        .filter(|_| plan.named)
        .map(|p| name(p.number))
        .collect();
    stream(plan.seed, plan.order, named)
}

async fn world(plan: Plan, time: Timeline) -> Evidence {
    let stream = stream_of(&plan);
    let stream_json = Bytes::from(stream.to_json());
    let store = SimStore::new(time, settings(&plan));
    store.put_now(keys::STREAM, stream_json.clone());
    let shared = Arc::new(Shared::new(plan.clone(), Arc::clone(&store)));
    let reads = tokio::select! {
        biased;
        reads = run_actors(Arc::clone(&shared)) => reads,
        () = time.sleep_until(HORIZON) => {
            let living = store.living().join(", ");
            let text = format!("not at its end after {HORIZON:?}; still there: {living}");
            shared.found("stuck", 0, text);
            Vec::new()
        }
    };
    let (events, actors) = store.take_events();
    let state = shared.take();
    Evidence {
        stream,
        stream_json,
        objects: store.objects(),
        landed: store.landed(),
        events,
        actors,
        reads,
        sessions: state.sessions,
        received: state.received,
        marked: state.marked,
        acknowledged: state.acknowledged,
        found: state.found,
        hash: store.hash(),
        requests: store.requests(),
        lasted: time.now(),
        plan,
    }
}

async fn run_actors(shared: Arc<Shared>) -> Vec<Vec<Read>> {
    let plan = &shared.plan;
    let producers: Vec<_> = plan
        .producers
        .iter()
        .map(|p| tokio::spawn(supervise(Arc::clone(&shared), p.clone())))
        .collect();
    let readers: Vec<_> = plan
        .readers
        .iter()
        .map(|r| spawn_reader(&shared, r))
        .collect();
    let life = plan
        .life
        .as_ref()
        .map(|life| tokio::spawn(lifecycle::run(Arc::clone(&shared), life.clone())));
    let operator = tokio::spawn(operate(Arc::clone(&shared)));
    let faulty = tokio::spawn(spoil(Arc::clone(&shared)));
    if let Some(at) = plan.sealed_at {
        seal(&shared, at).await;
    }
    for task in producers.into_iter().chain([operator, faulty]) {
        note_panic(&shared, task.await);
    }
    shared.set_done();
    let mut reads = Vec::new();
    for reader in readers {
        reads.extend(note_panic(&shared, reader.await));
    }
    if let Some(life) = life {
        note_panic(&shared, life.await);
        lifecycle::quiet(&shared).await;
    }
    reads
}

fn spawn_reader(shared: &Arc<Shared>, plan: &ReaderPlan) -> JoinHandle<Vec<Read>> {
    let name = format!("r{}", plan.number);
    let actor = shared.store.actor(&name, Nature::default());
    let reader = Reader {
        shared: Arc::clone(shared),
        plan: plan.clone(),
        store: shared.store.handle(&actor),
        actor,
    };
    tokio::spawn(reader.run())
}

/// Reports a panic of an actor as a violation.
fn note_panic<T>(shared: &Shared, ended: Result<T, JoinError>) -> Option<T> {
    ended
        .inspect_err(|e| shared.found("panic", 0, e.to_string()))
        .ok()
}

/// Seals the stream for good, with retries.
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
