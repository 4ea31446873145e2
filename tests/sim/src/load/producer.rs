//! One producer of a load: it makes TGBs at its rate and passes them to the real commit task. When its
//! process dies, another continues.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_log::{
    CommitEnd, CommitItem, CommitOptions, Committer, Log, LogError, LogOptions, OpenOutcome,
};

use super::scenario::Scenario;
use super::shared::{RAMP, Shared};
use crate::actor::{Actor, Nature};
use crate::draw::Draw;
use crate::policy::{AnyPolicy, PolicyKind};
use crate::world::content::{cursor, tgbs};
use crate::world::shared::name;

/// Producers stay this long after the load.
const STAY: Duration = Duration::from_secs(2);
/// A dead process is restarted after this time.
const RESTART: Duration = Duration::from_secs(1);

/// Runs processes until the load is over and everything is committed.
pub(super) async fn live(shared: Arc<Shared>, number: u32, starts: Duration) {
    shared.store.time.sleep_until(starts).await;
    let slow = shared.plan.scenario == Scenario::SlowProducers && number % 20 == 10;
    for process in 0.. {
        let nature = Nature {
            slow: if slow { 10.0 } else { 1.0 },
            ..Nature::default()
        };
        let actor = shared.store.actor(&format!("p{number}#{process}"), nature);
        shared.set_newest(number, &actor);
        let run = Process {
            shared: &shared,
            number,
            actor: &actor,
        };
        let ended = tokio::select! {
            biased;
            () = actor.died() => false,
            ended = run.run() => match ended {
                Ok(ended) => ended,
                Err(e) => {
                    shared.failed(&e);
                    false
                }
            },
        };
        if ended {
            return;
        }
        shared.store.time.sleep(RESTART).await;
    }
}

struct Process<'a> {
    shared: &'a Arc<Shared>,
    number: u32,
    actor: &'a Arc<Actor>,
}

impl Process<'_> {
    fn policy(&self, kind: PolicyKind) -> AnyPolicy {
        let seed = self.actor.draw(|d| d.range(0..u64::MAX));
        AnyPolicy::new(kind, seed)
    }

    /// Returns true when no work is left.
    async fn run(&self) -> Result<bool, LogError> {
        let plan = &self.shared.plan;
        let options = LogOptions {
            seed: self.actor.draw(Draw::seed),
            write_snapshots: true,
            clock: self.actor.clock(),
            shared_fold: Some(self.shared.memo()),
        };
        let store = self.shared.store.handle(self.actor);
        let log = Log::open(store, &options).await?;
        // Openings are measured only in a cold start; otherwise every policy opens like the
        // producers'.
        let own = plan.policy == PolicyKind::Dac || plan.scenario == Scenario::ColdStart;
        let mut policy = self.policy(if own { plan.policy } else { PolicyKind::Dac });
        let producer =
            match Committer::open_with(log, name(self.number), &self.actor.name, &mut policy)
                .await?
            {
                OpenOutcome::Opened(producer) => *producer,
                OpenOutcome::Finished { .. } | OpenOutcome::Sealed | OpenOutcome::Fenced { .. } => {
                    return Ok(true);
                }
            };
        self.shared.opened(self.number);
        let policy = if own {
            policy
        } else {
            self.policy(plan.policy)
        };
        self.produce(producer, policy).await
    }

    async fn produce(&self, producer: Committer, policy: AnyPolicy) -> Result<bool, LogError> {
        let plan = &self.shared.plan;
        let (epoch, nonce, mut seq) = (producer.epoch(), producer.nonce(), producer.next_seq());
        let begin = self.shared.begin().await;
        let options = CommitOptions {
            queue: 4096,
            ..CommitOptions::default()
        };
        let queue = producer.spawn(policy, options);
        let time = self.shared.store.time;
        let gap = self.gap();
        let mut next = self.first_at(begin, gap);
        loop {
            let since = next.saturating_sub(begin);
            let from = plan.scenario.active_from(self.number, since, plan.whole());
            if from >= plan.whole() {
                break;
            }
            if from > since {
                next = begin + from + gap.mul_f64(self.actor.draw(Draw::unit));
                continue;
            }
            time.sleep_until(next).await;
            self.actor.awake().await;
            self.shared.ready(self.number, seq);
            let key = keys::data(&name(self.number), epoch, nonce, (seq, seq), 0, 0);
            if !queue.submit(self.item(&key, seq)).await {
                break;
            }
            seq += 1;
            // Between half and one and a half times the mean.
            let pause = gap.mul_f64(0.5 + self.actor.draw(Draw::unit));
            next = (next + pause).max(time.now());
        }
        // A leader that leaves would disturb the measured time.
        time.sleep_until(begin + plan.whole() + STAY).await;
        let (end, _) = queue.close(false).await?;
        Ok(!matches!(end, CommitEnd::Fenced { .. }))
    }

    /// Returns the mean time between two TGBs.
    fn gap(&self) -> Duration {
        let plan = &self.shared.plan;
        let rate = plan.scenario.rate(plan.rate, self.number, plan.producers());
        Duration::from_secs_f64(1.0 / rate)
    }

    /// Draws the time of the first TGB of a load that begins at `begin`.
    fn first_at(&self, begin: Duration, gap: Duration) -> Duration {
        let start = begin.max(self.shared.store.time.now());
        let first = if start == begin { RAMP.max(gap) } else { gap };
        start + first.mul_f64(self.actor.draw(Draw::unit))
    }

    fn item(&self, key: &str, seq: u64) -> CommitItem {
        CommitItem {
            tgbs: tgbs(&name(self.number), key, seq, 1),
            cursor: cursor(seq + 1),
            mixture: None,
            stage: 0,
        }
    }
}
