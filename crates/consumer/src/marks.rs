//! Checkpoint marks and progress, stored as create-only objects under the job's keys.
//!
//! Best effort: a mark that can't be stored is tried again and never stops the daemon. Until jobs and
//! attempts go through the log, a job that no record opened has version 0 and attempt 0 in its keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::wire::{Checkpoint, DaemonMessage, Hello};
use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use bytes::Bytes;
use rand::RngExt;
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::engine::SessionId;
use crate::hub::{Hub, hex};

/// How often progress is stored, if it changed.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);
const TRIES: u32 = 8;

/// Where a job stands in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub(crate) opened: Version,
    pub(crate) attempt: AttemptNo,
}

/// Stores a mark in the background and tells the rank when it is there.
pub(crate) fn mark(
    hub: &Arc<Hub>,
    tasks: &TaskTracker,
    session: SessionId,
    hello: &Hello,
    made: &Checkpoint,
) {
    let step = made.step;
    let Some(job) = hello
        .job
        .as_deref()
        .and_then(|job| job.parse::<JobName>().ok())
    else {
        // A reader without a job holds nothing back: there is nothing to store.
        return hub.apply(|state| state.send(session, DaemonMessage::Marked(step)));
    };
    let at = hub.lock().incarnation(&job);
    let key = keys::mark(&job, at.opened, at.attempt, step, Some(hello.dp_rank));
    let body = json!({
        "format": 1,
        "stream": hub.stream.stream_id,
        "job": job,
        "attempt": hello.attempt,
        "dp_rank": hello.dp_rank,
        "dp_size": hello.dp_size,
        "step": step,
        "state": made.state,
    });
    let hub = Arc::clone(hub);
    tasks.spawn(async move {
        let stored = put(&hub, &key, &body).await;
        let outcome = if stored { "stored" } else { "lost" };
        hub.metrics.marks.with_label_values(&[outcome]).inc();
        if stored {
            hub.apply(|state| state.send(session, DaemonMessage::Marked(step)));
        }
    });
}

/// Stores how far this node's ranks have come, now and then.
pub(crate) async fn progress(hub: Arc<Hub>) {
    let mut last: BTreeMap<String, Step> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = hub.stop.cancelled() => return,
            () = tokio::time::sleep(PROGRESS_PERIOD) => {}
        }
        let positions = { hub.lock().positions() };
        for (job, step) in &positions {
            let Ok(name) = job.parse::<JobName>() else {
                continue;
            };
            if last.get(job) != Some(step) {
                let node = hex(&hub.instance);
                let at = hub.lock().incarnation(&name);
                let key = keys::progress(&name, at.opened, at.attempt, *step, (0, 0), &node);
                let stream = hub.stream.stream_id;
                let body =
                    json!({"format": 1, "stream": stream, "job": job, "node": node, "step": step});
                put(&hub, &key, &body).await;
            }
        }
        last = positions;
    }
}

/// Whether the object is there in the end. One that was there already says the same.
async fn put(hub: &Hub, key: &str, body: &serde_json::Value) -> bool {
    let body = Bytes::from(body.to_string());
    let mut pause = Duration::from_millis(100);
    for left in (0..TRIES).rev() {
        match hub.store.create(key, body.clone()).await {
            Ok(_) => return true,
            Err(why) if left > 0 && why.kind.is_transient() => {
                tracing::debug!(%why, "trying again");
            }
            Err(why) => {
                tracing::warn!(key, %why, "a mark or progress could not be stored");
                return false;
            }
        }
        let jitter = rand::rng().random_range(0.5..1.5);
        tokio::time::sleep(pause.mul_f64(jitter)).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
    false
}
