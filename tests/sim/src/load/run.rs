//! Runs a load: all producers open, then produce; the measured time begins after a settling time.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_core::stream::StreamOrder;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::figures::{Figures, Measured};
use super::plan::LoadPlan;
use super::producer::live;
use super::scenario::{DISTURB_EVERY, Scenario};
use super::shared::Shared;
use crate::draw::Draw;
use crate::store::link::LinkPlan;
use crate::store::outcome::Rates;
use crate::store::settings::{KEY_BYTES_MAX, Keep, SHORT_KEY_BYTES_MAX, Settings};
use crate::store::{Counts, SimStore};
use crate::time::{Timeline, run as run_time};
use crate::world::shared::stream;

/// Opening may take this long, and the last commits after the load.
const PATIENCE: Duration = Duration::from_mins(10);
/// A leader frozen by a scenario wakes up again after this time.
const FROZEN: Duration = Duration::from_secs(5);

/// Runs the load and measures it.
pub fn run(plan: &LoadPlan) -> std::io::Result<Figures> {
    run_time(|time| drive(*plan, time))
}

/// Creates the store of a load, with its stream.
fn loaded_store(plan: &LoadPlan, time: Timeline) -> Arc<SimStore> {
    let slower = if plan.scenario == Scenario::SlowStore {
        4.0
    } else {
        1.0
    };
    let settings = Settings {
        seed: plan.seed,
        profile: plan.profile.scaled(slower),
        rates: Rates::default(),
        link: LinkPlan::default(),
        calm_at: Duration::ZERO,
        keep: Keep::Records,
        key_bytes_max: if plan.short_keys {
            SHORT_KEY_BYTES_MAX
        } else {
            KEY_BYTES_MAX
        },
        manifest: plan.manifest,
    };
    let store = SimStore::new(time, settings);
    let stream = stream(plan.seed, StreamOrder::Arrival, Vec::new());
    store.put_now(keys::STREAM, Bytes::from(stream.to_json()));
    store
}

async fn drive(plan: LoadPlan, time: Timeline) -> Figures {
    let store = loaded_store(&plan, time);
    let producers = plan.producers();
    let (send, begin) = watch::channel(None);
    let shared = Arc::new(Shared::new(plan, Arc::clone(&store), begin));
    let mut draw = Draw::new(plan.seed, "start", 0);
    let spread = match plan.scenario {
        Scenario::ColdStart => Duration::ZERO,
        _ => Duration::from_secs_f64(f64::from(producers) / 200.0),
    };
    let lives: Vec<_> = (0..producers)
        .map(|n| {
            let starts = draw.duration(Duration::ZERO, spread);
            tokio::spawn(live(Arc::clone(&shared), n, starts))
        })
        .collect();
    while shared.waiting() > 0 && time.now() < PATIENCE {
        time.sleep(Duration::from_millis(5)).await;
    }
    let all_opened = time.now();
    if plan.scenario == Scenario::ColdStart {
        return measure(&shared, [all_opened; 2], [store.counts(), store.counts()]);
    }
    let begin = all_opened + Duration::from_secs(1);
    send.send_replace(Some(begin));
    let counted = [begin + plan.settle(), begin + plan.whole()];
    let disturbing = tokio::spawn(disturb(Arc::clone(&shared), counted));
    time.sleep_until(counted[0]).await;
    let before = store.counts();
    time.sleep_until(counted[1]).await;
    let after = store.counts();
    disturbing.abort();
    finish(lives, time).await;
    measure(&shared, counted, [before, after])
}

/// Waits for the producers, at most for [`PATIENCE`].
async fn finish(lives: Vec<JoinHandle<()>>, time: Timeline) {
    tokio::select! {
        biased;
        () = async {
            for life in lives {
                // A panic shows in the figures as missing entries.
                let _ = life.await;
            }
        } => {}
        () = time.sleep(PATIENCE) => {}
    }
}

/// Kills or freezes the leader in intervals.
async fn disturb(shared: Arc<Shared>, counted: [Duration; 2]) {
    let time = shared.store.time;
    let mut at = counted[0] + DISTURB_EVERY / 4;
    while at < counted[1] {
        time.sleep_until(at).await;
        match (shared.plan.scenario, shared.leader()) {
            (Scenario::LeaderKilled, Some(leader)) => leader.kill(),
            (Scenario::LeaderFrozen, Some(leader)) => leader.freeze(time.now() + FROZEN),
            _ => {}
        }
        at += DISTURB_EVERY;
    }
}

fn measure(shared: &Shared, counted: [Duration; 2], counts: [Counts; 2]) -> Figures {
    let state = shared.state();
    Figures::from(&Measured {
        plan: &shared.plan,
        counted,
        counts,
        landed: shared.store.landed(),
        ready: &state.ready,
        hash: shared.store.hash(),
        throttled: shared.store.throttled(),
        failures: state.failures,
        failure: state.failure.clone(),
    })
}
