//! Races between completions of multipart uploads, which create large data objects.

use futures::future::join_all;

use super::{ProbeReport, bodies, check_race, clean};
use crate::{Bucket, PendingUpload, Store, StoreError};

/// Completions that race for one key, each with its own upload.
const RACERS: usize = 8;

/// Runs `rounds` races of 8 conditional completions on an absent key each. `random` makes the
/// temporary keys below `probe/` unique.
pub async fn probe_completions(
    store: &dyn Store,
    bucket: &dyn Bucket,
    random: u64,
    rounds: usize,
) -> Result<ProbeReport, StoreError> {
    let mut report = ProbeReport::default();
    for round in 0..rounds {
        let key = format!("probe/{random:016x}/completion-{round}");
        let outcome = race(store, bucket, &key).await;
        clean(store, &key).await;
        report.unclear_answers += outcome?;
        report.rounds += 1;
    }
    Ok(report)
}

async fn race(store: &dyn Store, bucket: &dyn Bucket, key: &str) -> Result<usize, StoreError> {
    let bodies = bodies(key, RACERS, 0);
    let begun = join_all(
        bodies
            .iter()
            .map(|body| bucket.begin_upload(key, body.clone())),
    )
    .await;
    let uploads: Result<Vec<PendingUpload>, StoreError> = begun.iter().cloned().collect();
    let outcome = match uploads {
        Ok(uploads) => {
            let answers = join_all(uploads.iter().map(|upload| bucket.complete_upload(upload)));
            check_race(store, key, "completions", &bodies, answers.await).await
        }
        Err(error) => Err(error),
    };
    for upload in begun.into_iter().flatten() {
        // The winner's upload has ended; the losers' have not.
        if let Err(error) = bucket.abort_upload(&upload).await {
            tracing::debug!(%error, "cannot abort an upload of the probe");
        }
    }
    outcome
}
