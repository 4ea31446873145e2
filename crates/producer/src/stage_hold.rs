//! The wait of a producer that lacks a stage: all batches before are committed, and it says which lines to add.

use std::time::Duration;

use batchweave_log::{Log, LogOptions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pipeline::stages::MissingStage;
use crate::site::Site;

/// The pauses between two reads of the log grow from the first of these to the second.
const POLL_MIN: Duration = Duration::from_millis(500);
const POLL_MAX: Duration = Duration::from_secs(30);
/// How often the reason is logged again.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// Waits until the log has other stages than when `missing` was found. Returns false when `stop` is cancelled.
pub(crate) async fn wait(site: &Site, missing: &MissingStage, stop: &CancellationToken) -> bool {
    site.health
        .not_ready("holding: the configuration lacks a stage of the stream");
    let mut pause = POLL_MIN;
    let mut reported: Option<Instant> = None;
    loop {
        if reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            tracing::error!("{}", missing.text);
            reported = Some(Instant::now());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(POLL_MAX);
        match Log::open(site.store.clone(), &LogOptions::new(rand::random())).await {
            Ok(log) => {
                let m = log.manifest();
                if m.stages().newest() != missing.newest || m.end().is_some() {
                    return true;
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read the log while holding; trying again"),
        }
    }
}
