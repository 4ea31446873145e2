//! Following the log: looks up the steps that ranks need and polls the head, quickly when a rank is
//! near it and lazily when there is enough to do.

mod lookups;
mod replaced;

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_core::manifest::Manifest;
use batchweave_core::polling::{PollSchedule, PollState, followers};
use batchweave_log::{Located, Log, LogError};
use batchweave_wire::{ErrorName, Fault};
use tokio::sync::{mpsc, watch};

use self::lookups::Lookups;
use self::replaced::Followed;
use crate::config::FollowTable;
use crate::fetch::Lookup;
use crate::job::attempts::{Order, below_watermark, oldest_restart, open_attempt};
use crate::node::{Head, Hub, Needs, Reads, writer};

/// The pause after an error that trying again may not mend.
const BROKEN_PAUSE: Duration = Duration::from_secs(5);

/// What ranks need to know of the folded state.
pub(crate) fn head_of(manifest: &Manifest) -> Head {
    let awaited = manifest.awaited();
    Head {
        jobs: manifest.jobs().clone(),
        quarantine: manifest.quarantines().to_vec(),
        awaited: awaited.map(|awaited| (awaited.lane.clone(), awaited.since)),
        watermark: manifest.watermark(),
        next_step: manifest.next_step(),
        end: manifest.end(),
    }
}

/// Follows until the daemon stops.
pub(crate) async fn follow(
    mut log: Log,
    hub: Arc<Hub>,
    mut orders: mpsc::Receiver<Order>,
    table: FollowTable,
    steps_ahead: u64,
) {
    let mut needs = hub.needs.subscribe();
    let mut lookups = Lookups::new(hub.clone());
    let mut looked = hub.context.now();
    let mut followed = Followed::new(&log);
    loop {
        if let Err(why) = followed.settle(&mut log, &hub, &mut lookups).await {
            broken(&hub, &why).await;
            continue;
        }
        let now = needs.borrow_and_update().clone();
        if let Err(why) = look_up(&mut log, &hub, &mut lookups, &now.steps).await {
            broken(&hub, &why).await;
            continue;
        }
        let pause = pause(&hub, &now, &table, (steps_ahead, log.manifest()));
        tokio::select! {
            biased;
            () = hub.stop.cancelled() => return,
            () = hub.look.notified() => {}
            Some(order) = orders.recv() => {
                carry_out(&mut log, &hub, order, (&mut followed, &mut lookups)).await;
                continue;
            }
            () = changed(&mut needs, &now) => continue,
            () = lookups.one_is_over() => continue,
            () = hub.context.sleep_until(looked + pause) => {}
        }
        let outcome = match log.catch_up().await {
            Ok(()) => followed.settle(&mut log, &hub, &mut lookups).await,
            Err(why) => Err(why),
        };
        looked = hub.context.now();
        match outcome {
            Ok(()) => {
                note_head(&hub, &log);
                hub.has_looked();
            }
            Err(why) => broken(&hub, &why).await,
        }
    }
}

/// Puts into the log what a rank needs there.
async fn carry_out(
    log: &mut Log,
    hub: &Arc<Hub>,
    order: Order,
    (followed, lookups): (&mut Followed, &mut Lookups),
) {
    match order {
        Order::Open(wish, answer) => {
            let outcome = open_attempt(log, &wish, &writer(&hub.instance)).await;
            // What can't be compared now is before the next look at the log.
            if followed.settle(log, hub, lookups).await.is_ok() {
                note_head(hub, log);
            }
            // A rank that is gone needs no answer: the attempt is there when it comes again.
            let _ = answer.send(outcome);
        }
        Order::Restart(job, answer) => {
            let _ = answer.send(oldest_restart(log, &job).await);
        }
    }
}

/// Waits for needs that ask for other steps, or for haste; a change of the lead alone does not ask for
/// a look-up.
async fn changed(needs: &mut watch::Receiver<Needs>, then: &Needs) {
    // A closed channel can't be: the hub holds the sender and this task the hub.
    let other = needs
        .wait_for(|now| now.steps != then.steps || (now.hurry && !then.hurry))
        .await
        .is_ok();
    if !other {
        std::future::pending::<()>().await;
    }
}

fn note_head(hub: &Arc<Hub>, log: &Log) {
    let head = head_of(log.manifest());
    let known = { hub.lock().head == head };
    if !known {
        hub.apply(|state| state.set_head(head));
        hub.heads.notify_waiters();
    }
    // What was broken is whole again: someone repaired it, or the store answers.
    let mended = { hub.lock().log_fault.is_some() };
    if mended {
        hub.log_broken(None);
    }
    hub.store_health(Reads::Log, None);
}

/// Finds those of `steps` that are committed, and has the places of the slices looked up that ranks need.
async fn look_up(
    log: &mut Log,
    hub: &Arc<Hub>,
    lookups: &mut Lookups,
    steps: &[Step],
) -> Result<(), LogError> {
    let mut found = Vec::new();
    let outcome = find(log, hub, lookups, steps, &mut found).await;
    // Also when the log failed at a later step.
    lookups.start(found);
    outcome
}

async fn find(
    log: &mut Log,
    hub: &Arc<Hub>,
    lookups: &Lookups,
    steps: &[Step],
    found: &mut Vec<Lookup>,
) -> Result<(), LogError> {
    for &step in steps {
        if lookups.has(step) {
            continue;
        }
        match log.locate(step).await? {
            Located::At(entry) => {
                let slices = {
                    let mut state = hub.lock();
                    state.note_step(step, entry.tgb.digest);
                    state.engine.lacking(step)
                };
                if !slices.is_empty() {
                    found.push(Lookup { entry, slices });
                }
            }
            Located::NotYet | Located::Ended { .. } => break,
            Located::Reclaimed { watermark } => {
                let fault = below_watermark(step, watermark);
                hub.apply(|state| state.fail_step(step, &fault));
            }
        }
    }
    Ok(())
}

fn pause(
    hub: &Hub,
    needs: &Needs,
    table: &FollowTable,
    (steps_ahead, manifest): (u64, &Manifest),
) -> Duration {
    let looks = PollSchedule {
        starved: table.starved.0,
        idle: table.idle.0,
        steps_ahead,
    };
    let now = PollState {
        lead: needs.lead,
        hurry: needs.hurry,
        followers: followers(manifest, needs.coordinates),
    };
    looks.pause(now, hub.context.random(0.0..1.0))
}

/// Tells why the log can't be followed, then waits before the next try.
async fn broken(hub: &Arc<Hub>, why: &LogError) {
    let pause = if let LogError::Store(store) = why {
        hub.store_health(Reads::Log, Some(store));
        Duration::from_secs_f64(hub.context.random(0.2..1.0))
    } else {
        let known = { hub.lock().log_fault.is_some() };
        if !known {
            tracing::error!(%why, "the log can't be followed");
        }
        hub.log_broken(Some(Fault::new(ErrorName::LogUnreadable, why.to_string())));
        BROKEN_PAUSE
    };
    tokio::select! {
        biased;
        () = hub.stop.cancelled() => {}
        () = hub.context.sleep(pause) => {}
    }
}
