//! The status of an attempt by the newest log, to decide whether a daemon refuses a rank wrongly.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{JobName, Step};
use batchweave_log::Log;
use batchweave_store::Store;

use super::rank::AttemptRequest;
use crate::actor::Actor;
use crate::world::forward::options;
use crate::world::shared::Shared;

const AGAIN: Duration = Duration::from_millis(200);

/// The status by the newest record.
pub(super) enum AttemptStatus {
    /// It is the newest attempt of its job, which is open.
    Newest { watermark: Step },
    /// The log does not contain it.
    NotOpen { watermark: Step },
    /// Another attempt has followed.
    Superseded,
    /// The incarnation is closed.
    Closed,
}

/// Reads the log, with retries, and returns the status.
pub(super) async fn attempt_status(
    shared: &Arc<Shared>,
    actor: &Arc<Actor>,
    store: &Arc<dyn Store>,
    job: &JobName,
    wanted: &AttemptRequest,
) -> AttemptStatus {
    let log = loop {
        let options = options(shared, actor, false);
        match Log::open(Arc::clone(store), &options).await {
            Ok(log) => break log,
            Err(_) => actor.sleep(AGAIN).await,
        }
    };
    let watermark = log.manifest().watermark();
    let job = log.manifest().jobs().get(job);
    let Some(job) = job.filter(|job| job.opened == wanted.opened) else {
        return AttemptStatus::Closed;
    };
    if job.attempts.last().map(|a| a.id) == Some(wanted.id) {
        return AttemptStatus::Newest { watermark };
    }
    if job.attempts.iter().any(|a| a.id == wanted.id) {
        return AttemptStatus::Superseded;
    }
    AttemptStatus::NotOpen { watermark }
}
