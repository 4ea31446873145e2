//! How far this node's ranks have come, stored for reclaimers and for producers that are held back:
//! every so many steps, at once when a rank waits for the producers, and now and then.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::AttemptId;
use batchweave_core::retention::Progress;
use tokio_util::sync::CancellationToken;

use crate::job::marks::put;
use crate::node::{Hub, Run, hex};

/// Stored at least so often, if it changed.
const PERIOD: Duration = Duration::from_secs(10);
/// And at most so often.
const GAP: Duration = Duration::from_millis(100);

/// Own objects that newer ones replace.
struct Stored {
    key: String,
    attempt: AttemptId,
    run: Run,
}

/// Stores progress until `stop`, and once more then.
pub(crate) async fn report(hub: Arc<Hub>, stop: CancellationToken) {
    let mut stored = Vec::new();
    loop {
        let last = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = hub.progress_due.notified() => false,
            () = hub.context.sleep(PERIOD) => false,
        };
        round(&hub, &mut stored).await;
        if last {
            return;
        }
        hub.context.sleep(GAP).await;
    }
}

/// Stores what is new, then deletes what it replaces. A LIST that misses both sees less progress than
/// there is, which harms nobody.
async fn round(hub: &Hub, stored: &mut Vec<Stored>) {
    let runs = { hub.lock().runs() };
    for run in runs {
        let attempt = run.member.id;
        let known = |s: &Stored| s.attempt == attempt && s.run == run;
        if run.step <= run.member.start || stored.iter().any(known) {
            continue;
        }
        let progress = progress_of(hub, &run);
        let key = progress.key();
        if let Err(why) = put(hub, &key, progress.to_json().into()).await {
            tracing::warn!(key, %why, "progress could not be stored; trying again later");
            continue;
        }
        hub.lock().progress_stored(&run);
        let replaced = |old: &mut Stored| {
            let inside = run.first <= old.run.first && old.run.last <= run.last;
            let inside = inside || guards::replaces_other_progress();
            old.attempt == attempt && inside && old.run.step <= run.step
        };
        for old in stored.extract_if(.., replaced) {
            if let Err(why) = hub.store.delete(&old.key).await {
                // The reclaimer takes it with the attempt.
                tracing::debug!(key = old.key, %why, "older progress could not be deleted");
            }
        }
        stored.push(Stored { key, attempt, run });
    }
    let live: Vec<AttemptId> = { hub.lock().runs() }
        .iter()
        .map(|run| run.member.id)
        .collect();
    stored.retain(|old| live.contains(&old.attempt));
}

fn progress_of(hub: &Hub, run: &Run) -> Progress {
    let member = &run.member;
    Progress {
        format: 1,
        stream: hub.stream.stream_id,
        job: member.job.clone(),
        opened: member.opened,
        attempt: member.attempt,
        id: member.id,
        node: hex(&hub.instance),
        first: run.first,
        last: run.last,
        step: run.step,
        at: hub.context.calendar(),
    }
}
