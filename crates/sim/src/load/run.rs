//! Runs a load: everybody opens, then produces; a while to settle, then the time that counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::keys;
use batchweave_core::manifest::Record;
use batchweave_core::stream::StreamOrder;
use batchweave_log::{LogError, SharedFold};
use bytes::Bytes;
use tokio::sync::watch;

use super::figures::{Figures, Measured};
use super::memo::Memo;
use super::producer::live;
use super::scenario::{DISTURB_EVERY, Scenario};
use crate::actor::Actor;
use crate::draw::Draw;
use crate::fate::Rates;
use crate::link::LinkPlan;
use crate::policy::PolicyKind;
use crate::profile::Profile;
use crate::store::{KEY_BYTES_MAX, Keep, Settings, SimStore};
use crate::time::{Timeline, run as run_time};
use crate::world::run::stream;

/// From the beginning of the load to the time that counts; more where thousands begin within
/// seconds: what a store allows in reads is then used up by those who catch up.
const SETTLE: Duration = Duration::from_secs(10);
const SETTLED_PER_SECOND: u32 = 50;
/// Not all begin in the same moment.
pub(super) const RAMP: Duration = Duration::from_secs(5);
/// What is not visible so long after the end is given up.
const PATIENCE: Duration = Duration::from_mins(10);
/// A leader frozen by a scenario wakes up again after this time.
const FROZEN: Duration = Duration::from_secs(5);

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct LoadPlan {
    /// How many producers; some scenarios have a number of their own.
    pub asked: u32,
    /// Entries a second of each, on average.
    pub rate: f64,
    /// The store.
    pub profile: Profile,
    /// How they commit.
    pub policy: PolicyKind,
    /// The case.
    pub scenario: Scenario,
    /// The time that counts.
    pub seconds: u64,
    /// Feeds all that is random.
    pub seed: u64,
}

impl LoadPlan {
    pub(super) fn producers(&self) -> u32 {
        self.scenario.producers(self.asked)
    }

    fn settle(&self) -> Duration {
        SETTLE.max(Duration::from_secs(1) * self.producers() / SETTLED_PER_SECOND)
    }

    /// How long they produce.
    pub(super) fn whole(&self) -> Duration {
        self.settle() + Duration::from_secs(self.seconds)
    }
}

/// What all producers of a load share.
pub(super) struct Shared {
    pub(super) plan: LoadPlan,
    pub(super) store: Arc<SimStore>,
    memo: Arc<Memo>,
    begin: watch::Receiver<Option<Duration>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newest: BTreeMap<ProducerName, Arc<Actor>>,
    opened: Vec<bool>,
    waiting: u32,
    /// When each TGB was ready, by producer and sequence.
    ready: Vec<Vec<Duration>>,
    failures: u64,
    failure: Option<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memo(&self) -> Arc<dyn SharedFold> {
        Arc::clone(&self.memo) as Arc<dyn SharedFold>
    }

    pub(super) fn set_newest(&self, number: u32, actor: &Arc<Actor>) {
        let name = crate::world::run::name(number);
        self.state().newest.insert(name, Arc::clone(actor));
    }

    pub(super) fn opened(&self, number: u32) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.opened[number as usize], true);
        state.waiting -= u32::from(!before);
    }

    /// When the load begins; known once everybody has opened.
    pub(super) async fn begin(&self) -> Duration {
        let mut begin = self.begin.clone();
        // The sender lives as long as the run.
        begin
            .wait_for(Option::is_some)
            .await
            .map_or_else(|_| Duration::ZERO, |b| b.unwrap_or_default())
    }

    /// A TGB is ready now; again, when its first maker died with it.
    pub(super) fn ready(&self, number: u32, seq: Seq) {
        let now = self.store.time.now();
        let mut state = self.state();
        let ready = &mut state.ready[number as usize];
        ready.truncate(seq as usize);
        ready.resize(seq as usize, now);
        ready.push(now);
    }

    pub(super) fn failed(&self, error: &LogError) {
        let mut state = self.state();
        state.failures += 1;
        state.failure.get_or_insert_with(|| error.to_string());
    }

    /// The process whose record said last that it leads.
    fn leader(&self) -> Option<Arc<Actor>> {
        let writer = self.store.newest_landed(|landed| {
            let record = Record::from_json(&landed.body, 0).ok()?;
            record.hints.leads.then_some(record.writer.name)
        })?;
        let state = self.state();
        let name = writer.parse::<ProducerName>().ok()?;
        state.newest.get(&name).cloned()
    }
}

/// Runs the load and measures it.
pub fn run(plan: &LoadPlan) -> std::io::Result<Figures> {
    run_time(|time| drive(*plan, time))
}

async fn drive(plan: LoadPlan, time: Timeline) -> Figures {
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
        key_bytes_max: KEY_BYTES_MAX,
    };
    let store = SimStore::new(time, settings);
    let stream = stream(plan.seed, StreamOrder::Arrival, Vec::new());
    store.put_now(keys::STREAM, Bytes::from(stream.to_json()));
    let producers = plan.producers();
    let (send, begin) = watch::channel(None);
    let shared = Arc::new(Shared {
        plan,
        store: Arc::clone(&store),
        memo: Arc::default(),
        begin,
        state: Mutex::new(State {
            opened: vec![false; producers as usize],
            waiting: producers,
            ready: vec![Vec::new(); producers as usize],
            ..State::default()
        }),
    });
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
    while shared.state().waiting > 0 && time.now() < PATIENCE {
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
    tokio::select! {
        biased;
        () = async {
            for life in lives {
                // A panic shows in the figures as what is missing.
                let _ = life.await;
            }
        } => {}
        () = time.sleep(PATIENCE) => {}
    }
    measure(&shared, counted, [before, after])
}

/// Kills or freezes whoever leads.
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

fn measure(shared: &Shared, counted: [Duration; 2], counts: [crate::store::Counts; 2]) -> Figures {
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
