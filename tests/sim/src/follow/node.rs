//! One node's follower, like the consumer daemon's: it polls in the intervals of the rule, and pauses
//! for a random time after a failure of the store.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::polling::{PollSchedule, PollState, followers};
use batchweave_log::{Follower, Log, LogError, LogOptions};

use super::shared::Shared;
use crate::actor::{Actor, Nature};
use crate::draw::Draw;

/// The consumer's defaults: `[follow]` and `[prefetch]` of its configuration.
const LOOKS: PollSchedule = PollSchedule {
    starved: Duration::from_millis(50),
    idle: Duration::from_secs(2),
    steps_ahead: 64,
};

/// Follows the log until it is dropped.
pub(super) async fn live(shared: Arc<Shared>, number: u32) {
    let actor = shared
        .store
        .actor(&format!("node{number}"), Nature::default());
    loop {
        // The store failed: the daemon restarts.
        if follow(&shared, &actor).await.is_ok() {
            return;
        }
        actor.sleep(broken(&actor)).await;
    }
}

fn broken(actor: &Actor) -> Duration {
    Duration::from_millis(200).mul_f64(1.0 + 4.0 * actor.draw(Draw::unit))
}

async fn follow(shared: &Arc<Shared>, actor: &Arc<Actor>) -> Result<(), LogError> {
    let options = LogOptions {
        seed: actor.draw(Draw::seed),
        write_snapshots: false,
        clock: actor.clock(),
        shared_fold: Some(shared.memo()),
    };
    let mut follower = Follower::default();
    let mut log = Log::open(shared.store.handle(actor), &options).await?;
    shared.opened();
    let begin = shared.begin().await;
    actor
        .sleep(begin.saturating_sub(actor.now()) + LOOKS.idle.mul_f64(actor.draw(Draw::unit)))
        .await;
    loop {
        let looked = actor.now();
        let before = log.manifest().next_version();
        let among = if shared.plan.aware {
            followers(log.manifest(), 1)
        } else {
            1
        };
        match follower.poll(&mut log, among, || actor.now()).await {
            Ok(more) => {
                shared.known(before..log.manifest().next_version());
                if more {
                    continue;
                }
            }
            Err(LogError::Store(_)) => {
                actor.sleep(broken(actor)).await;
                continue;
            }
            Err(e) => return Err(e),
        }
        let pause = pause(shared, actor, &follower, &log, among);
        let passed = actor.now().saturating_sub(looked);
        actor.sleep(pause.saturating_sub(passed)).await;
    }
}

/// Draws the time from one poll to the next.
fn pause(shared: &Shared, actor: &Actor, follower: &Follower, log: &Log, among: u32) -> Duration {
    let now = PollState {
        lead: Some(shared.plan.lead),
        followers: among,
        ..PollState::default()
    };
    let draw = actor.draw(Draw::unit);
    match follower.pause(log, now.lead, among) {
        Some(pause) => pause.mul_f64(0.9 + 0.2 * draw),
        None => LOOKS.pause(now, draw),
    }
}
