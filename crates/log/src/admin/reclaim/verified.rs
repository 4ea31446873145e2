//! Marks and progress that decide what is given up are read before they are believed: a name says what
//! an object would hold, and whoever may create names in `jobs/` must not give up data by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{AttemptId, Step, StreamId};
use batchweave_core::keys;
use batchweave_core::manifest::state::JobState;
use batchweave_core::retention::{self, AttemptObjects, JobObjects, Mark, Progress};
use batchweave_store::{ErrorKind, Store, StoreError};
use futures::{StreamExt, TryStreamExt, stream};
use tracing::warn;

use super::job_objects::{Listed, Signs};
use crate::read::retrying::get_intact;
use crate::{Log, LogError};

/// Reads at once.
const READS_AT_ONCE: usize = 32;

/// Names that were read in earlier passes; what they name never changes.
#[derive(Debug, Default)]
pub(super) struct Proved {
    right: BTreeSet<String>,
    /// Told once.
    wrong: BTreeSet<String>,
}

impl Proved {
    /// The signs of which none that decides is false, and how many objects were read for it.
    pub(super) async fn signs(
        &mut self,
        log: &Log,
        listed: &mut Listed,
    ) -> Result<(Signs, u64), LogError> {
        let m = log.manifest();
        let mut reads = 0;
        self.right.retain(|key| listed.has(key));
        self.wrong.retain(|key| listed.has(key));
        loop {
            let signs = listed.signs(m);
            let unread = listed.deciding(m, &signs, &self.right);
            if unread.is_empty() {
                return Ok((signs, reads));
            }
            reads += unread.len() as u64;
            let reads = unread.into_iter().map(|(key, attempt)| {
                let whose = (m.stream_id(), attempt.id, attempt.dp_size);
                read(Arc::clone(&log.store), key, whose)
            });
            let reads: Vec<_> = reads.collect();
            let read = stream::iter(reads).buffered(READS_AT_ONCE);
            let read: Vec<_> = read.try_collect().await?;
            for (key, why) in read {
                let Some(why) = why else {
                    self.right.insert(key);
                    continue;
                };
                listed.drop(&key);
                if self.wrong.insert(key.clone()) {
                    warn!(key, %why, "a mark or progress that is none gives up nothing");
                }
            }
        }
    }
}

/// Reads an object; with what is wrong with it, and none where it is what its name says. An object that
/// is gone decides nothing.
async fn read(
    store: Arc<dyn Store>,
    key: String,
    (stream, id, dp_size): (StreamId, AttemptId, u32),
) -> Result<(String, Option<String>), StoreError> {
    let bytes = match get_intact(store.as_ref(), &key).await {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind, ErrorKind::NotFound | ErrorKind::TooLarge) => {
            return Ok((key, Some(e.to_string())));
        }
        Err(e) => return Err(e),
    };
    let whose = if keys::parse_mark(&key).is_some() {
        Mark::from_json(&bytes, &key, stream).map(|mark| (mark.id, mark.dp_size))
    } else {
        Progress::from_json(&bytes, &key, stream).map(|progress| (progress.id, dp_size))
    };
    let why = match whose {
        Err(why) => Some(why.to_string()),
        Ok(other) if other != (id, dp_size) => Some(format!(
            "it is of attempt {} with dp_size {}",
            other.0, other.1
        )),
        Ok(_) => None,
    };
    Ok((key, why))
}

/// Whether the marks and progress of `job` would move the watermark, if no other job held it.
pub(super) fn moves(job: &JobState, signs: &JobObjects, watermark: Step) -> bool {
    job.holds && retention::floor(job, signs).is_some_and(|floor| floor > watermark)
}

/// The restart points that a job keeps: with one of them less, its floor would be lower.
pub(super) fn kept(job: &JobState, signs: &JobObjects) -> BTreeSet<Step> {
    let points = retention::restart_points(job, signs);
    points
        .into_iter()
        .rev()
        .take(job.keep.max(1) as usize)
        .collect()
}

/// Whether a progress object is the newest of one of its coordinates.
pub(super) fn is_newest(key: &str, signs: &AttemptObjects) -> bool {
    keys::parse_progress(key).is_some_and(|progress| {
        let at = signs.progress.range(progress.first..=progress.last);
        at.into_iter().any(|(_, newest)| *newest == progress.step)
    })
}
