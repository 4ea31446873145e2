//! Following the log: looks up the steps that ranks need and polls the head, quickly when a rank is
//! near it and lazily when there is enough to do.

use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::wire::{ErrorName, Fault};
use batchweave_core::follow::{Looks, Standing, followers};
use batchweave_core::ids::Step;
use batchweave_core::manifest::{Manifest, StepEntry};
use batchweave_log::{Located, Log, LogError};
use futures::StreamExt;
use rand::RngExt;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::attempts::{Order, below_watermark, oldest_restart, open_attempt};
use crate::config::FollowTable;
use crate::hub::{Head, Hub, Needs, Reads, writer};
use crate::plan::{self, PlanError};

/// Indexes read at a time.
const RESOLVE_CONCURRENCY: usize = 16;
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
    let mut looked = Instant::now();
    loop {
        let now = needs.borrow_and_update().clone();
        if let Err(why) = look_up(&mut log, &hub, &now.steps).await {
            broken(&hub, &why).await;
            continue;
        }
        let pause = pause(&now, &table, steps_ahead, log.manifest());
        tokio::select! {
            biased;
            () = hub.stop.cancelled() => return,
            () = hub.look.notified() => {}
            Some(order) = orders.recv() => {
                carry_out(&mut log, &hub, order).await;
                continue;
            }
            () = changed(&mut needs, &now) => continue,
            () = tokio::time::sleep_until(looked + pause) => {}
        }
        let outcome = log.catch_up().await;
        looked = Instant::now();
        hub.rounds.send_modify(|round| *round += 1);
        match outcome {
            Ok(_) => note_head(&hub, &log),
            Err(why) => broken(&hub, &why).await,
        }
    }
}

/// Puts into the log what a rank needs there.
async fn carry_out(log: &mut Log, hub: &Arc<Hub>, order: Order) {
    match order {
        Order::Open(wish, answer) => {
            let outcome = open_attempt(log, &wish, &writer(&hub.instance)).await;
            note_head(hub, log);
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
        hub.heads.send_replace(());
    }
    // What was broken is whole again: someone repaired it, or the store answers.
    let mended = { hub.lock().log_fault.is_some() };
    if mended {
        hub.log_broken(None);
    }
    hub.store_health(Reads::Log, None);
}

/// Finds those of `steps` that are committed and tells the hub where their frames lie.
async fn look_up(log: &mut Log, hub: &Arc<Hub>, steps: &[Step]) -> Result<(), LogError> {
    let mut found = Vec::new();
    for &step in steps {
        match log.locate(step).await? {
            Located::At(entry) => found.push(entry),
            Located::NotYet | Located::Ended { .. } => break,
            Located::Reclaimed { watermark } => {
                let fault = below_watermark(step, watermark);
                hub.apply(|state| state.fail_step(step, &fault));
            }
        }
    }
    let resolving = found.into_iter().map(|entry| resolve(hub, entry));
    let mut resolved = futures::stream::iter(resolving).buffered(RESOLVE_CONCURRENCY);
    let mut known = Vec::new();
    while let Some((step, outcome)) = resolved.next().await {
        match outcome {
            Ok(frames) => known.push((step, frames)),
            Err(PlanError::Store(why)) if !why.is_not_found() => return Err(why.into()),
            Err(why) => {
                let fault = Fault::new(ErrorName::CorruptData, why.to_string()).at_step(step);
                hub.apply(|state| state.fail_step(step, &fault));
            }
        }
    }
    // All at once, so that neighbouring steps can share a read.
    if !known.is_empty() {
        hub.apply(|state| state.add_steps(known));
    }
    Ok(())
}

async fn resolve(
    hub: &Hub,
    entry: Arc<StepEntry>,
) -> (Step, Result<Arc<[plan::Location]>, PlanError>) {
    let on_read = |bytes| hub.metrics.bytes_fetched.inc_by(bytes);
    let stream = hub.stream.stream_id;
    let frames = plan::resolve(
        hub.store.as_ref(),
        stream,
        &entry,
        hub.stream.slices,
        on_read,
    );
    (entry.step, frames.await)
}

fn pause(needs: &Needs, table: &FollowTable, steps_ahead: u64, manifest: &Manifest) -> Duration {
    let looks = Looks {
        starved: table.starved.0,
        idle: table.idle.0,
        steps_ahead,
    };
    let now = Standing {
        lead: needs.lead,
        hurry: needs.hurry,
        followers: followers(manifest, needs.coordinates),
    };
    looks.pause(now, rand::rng().random_range(0.0..1.0))
}

/// Tells why the log can't be followed, then waits before the next try.
async fn broken(hub: &Arc<Hub>, why: &LogError) {
    let pause = if let LogError::Store(store) = why {
        hub.store_health(Reads::Log, Some(store));
        Duration::from_millis(rand::rng().random_range(200..1000))
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
        () = tokio::time::sleep(pause) => {}
    }
}
