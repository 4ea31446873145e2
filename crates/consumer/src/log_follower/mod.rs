//! The follower of the log: looks up the steps that ranks need and polls the head, often when a rank is near it
//! and rarely otherwise.
//!
//! `lookups` finds the locations of slices, `replaced` handles a log that was replaced by another, `polls` decides
//! when the next poll is due; a store that notices new records makes it earlier.

mod lookups;
mod polls;
mod replaced;

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_log::{Located, Log, LogError};
use batchweave_store::Hints;
use batchweave_wire::{ErrorName, Fault};
use tokio::sync::{mpsc, watch};

use self::lookups::Lookups;
use self::polls::Polls;
use self::replaced::FollowedLog;
use crate::config::FollowTable;
use crate::fetch::Lookup;
use crate::job::attempts::{LogRequest, open_attempt};
use crate::job::restart::oldest_restart;
use crate::node::{Needs, Node};
use crate::resources::writer;
use crate::store_health::ReadKind;
use crate::stream_head::{Head, below_first};

/// The pause after an error that a retry may not cure.
const BROKEN_PAUSE: Duration = Duration::from_secs(5);

/// Follows the log until the daemon stops.
pub(crate) async fn follow(
    mut log: Log,
    node: Arc<Node>,
    mut requests: mpsc::Receiver<LogRequest>,
    table: FollowTable,
    steps_ahead: u64,
) {
    let mut needs = node.needs.subscribe();
    let mut lookups = Lookups::new(node.clone());
    let mut polls = Polls::new(&table, steps_ahead, node.resources.context.now());
    let mut followed = FollowedLog::new(&log);
    let mut hints = Hints::new(keys::LOG);
    loop {
        if let Err(why) = followed
            .handle_replacement(&mut log, &node, &mut lookups)
            .await
        {
            report_failure(&node, &why).await;
            continue;
        }
        let now = needs.borrow_and_update().clone();
        if let Err(why) = look_up(&mut log, &node, &mut lookups, &now.steps).await {
            report_failure(&node, &why).await;
            continue;
        }
        let due = polls.due(&log, &node, &now, hints.are_given());
        let mut whole = false;
        tokio::select! {
            biased;
            () = node.resources.stop.cancelled() => return,
            () = node.polls.requested.notified() => whole = true,
            Some(request) = requests.recv() => {
                carry_out(&mut log, &node, request, &mut followed, &mut lookups).await;
                continue;
            }
            () = changed(&mut needs, &now) => continue,
            () = lookups.one_ended() => continue,
            () = node.resources.context.sleep_until(due.at) => {}
            () = hints.changed(node.resources.store.as_ref()), if polls.wants_hints(&now) => {}
        }
        let polled = if whole {
            polls.poll_head(&mut log, &node).await
        } else {
            polls.poll(&mut log, &node, &now, due).await
        };
        let outcome = match polled {
            Ok(()) => {
                followed
                    .handle_replacement(&mut log, &node, &mut lookups)
                    .await
            }
            Err(why) => Err(why),
        };
        match outcome {
            Ok(()) => {
                note_head(&node, &log);
                if whole {
                    node.polls.note();
                }
            }
            Err(why) => report_failure(&node, &why).await,
        }
    }
}

/// Carries out a request of a rank.
async fn carry_out(
    log: &mut Log,
    node: &Arc<Node>,
    request: LogRequest,
    followed: &mut FollowedLog,
    lookups: &mut Lookups,
) {
    match request {
        LogRequest::Open(attempt, answer) => {
            let writer = writer(&node.resources.instance);
            let outcome = open_attempt(log, &attempt, &writer).await;
            // If the log can't be compared now, that is done before the next poll.
            if followed
                .handle_replacement(log, node, lookups)
                .await
                .is_ok()
            {
                note_head(node, log);
            }
            // A rank that is gone needs no answer: it finds the attempt when it reconnects.
            let _ = answer.send(outcome);
        }
        LogRequest::Restart(job, answer) => {
            let _ = answer.send(oldest_restart(log, &job).await);
        }
    }
}

/// Waits until other steps are needed or fast polling is requested; a change of the lead alone needs no lookup.
async fn changed(needs: &mut watch::Receiver<Needs>, then: &Needs) {
    // The channel is never closed: the node holds the sender, and this task the node.
    let changed = needs
        .wait_for(|now| now.steps != then.steps || (now.hurry && !then.hurry))
        .await
        .is_ok();
    if !changed {
        std::future::pending::<()>().await;
    }
}

fn note_head(node: &Arc<Node>, log: &Log) {
    let head = Head::from_manifest(log.manifest());
    let known = { node.lock().head == head };
    if !known {
        node.apply(|state| state.set_head(head));
        node.head_changed.notify_waiters();
    }
    // The log can be followed again: it was repaired, or the store answers.
    let recovered = { node.lock().log_fault.is_some() };
    if recovered {
        node.set_log_fault(None);
    }
    node.resources.store_health.note(ReadKind::Log, None);
}

/// Finds the committed ones of `steps`, and starts lookups of the slices that ranks need.
async fn look_up(
    log: &mut Log,
    node: &Arc<Node>,
    lookups: &mut Lookups,
    steps: &[Step],
) -> Result<(), LogError> {
    let mut found = Vec::new();
    let outcome = find(log, node, lookups, steps, &mut found).await;
    // Steps found before an error are looked up, too.
    lookups.start(found);
    outcome
}

async fn find(
    log: &mut Log,
    node: &Arc<Node>,
    lookups: &Lookups,
    steps: &[Step],
    found: &mut Vec<Lookup>,
) -> Result<(), LogError> {
    for &step in steps {
        if lookups.contains(step) {
            continue;
        }
        match log.locate(step).await? {
            Located::At(entry) => {
                let slices = {
                    let mut state = node.lock();
                    state.note_step(step, entry.tgb.digest);
                    state.engine.lacking(step)
                };
                if !slices.is_empty() {
                    found.push(Lookup { entry, slices });
                }
            }
            Located::NotYet | Located::Ended { .. } => break,
            Located::Reclaimed { watermark } => {
                let fault = below_first(log.manifest().stream(), step, watermark);
                node.apply(|state| state.fail_step(step, &fault));
            }
        }
    }
    Ok(())
}

/// Reports why the log can't be followed, then waits before the next attempt.
async fn report_failure(node: &Arc<Node>, why: &LogError) {
    let pause = if let LogError::Store(store) = why {
        let resources = &node.resources;
        resources.store_health.note(ReadKind::Log, Some(store));
        Duration::from_secs_f64(resources.context.random(0.2..1.0))
    } else {
        let known = { node.lock().log_fault.is_some() };
        if !known {
            tracing::error!(%why, "the log can't be followed");
        }
        node.set_log_fault(Some(Fault::new(ErrorName::LogUnreadable, why.to_string())));
        BROKEN_PAUSE
    };
    tokio::select! {
        biased;
        () = node.resources.stop.cancelled() => {}
        () = node.resources.context.sleep(pause) => {}
    }
}
