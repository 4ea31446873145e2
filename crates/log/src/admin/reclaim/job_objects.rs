//! The marks and progress of jobs: LISTs of their attempts' objects, and those on which a watermark rests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::guards;
use batchweave_core::ids::{JobName, Step};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{AttemptState, JobState};
use batchweave_core::retention::{self, AttemptObjects, JobObjects};
use batchweave_store::{ObjectMeta, Pages, Store, StoreError};
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::LogError;
use crate::log::Log;

/// Listings that run at the same time.
const LISTS_AT_ONCE: usize = 8;

/// The marks and progress of all open jobs.
pub(super) type ObjectsByJob = BTreeMap<JobName, JobObjects>;

impl Log {
    /// Returns the marks and progress of the open jobs in the folded state, by object names alone: those of
    /// the newest attempts, and the marks of earlier attempts that may still count.
    pub async fn job_objects(&mut self) -> Result<BTreeMap<JobName, JobObjects>, LogError> {
        Ok(list(self).await?.objects(self.manifest()))
    }
}

/// The listed object names, by prefix.
pub(super) struct Listed {
    prefixes: Vec<(AttemptPrefix, BTreeSet<String>)>,
    /// Pages of the listings.
    pub(super) pages: u64,
}

/// Lists marks and progress.
pub(super) async fn list(log: &Log) -> Result<Listed, LogError> {
    let store = Arc::clone(&log.store);
    let reads = stream::iter(prefixes(log.manifest())).map(|prefix| {
        let store = Arc::clone(&store);
        async move {
            let (mut found, mut pages) = (BTreeSet::new(), 0);
            each(store.as_ref(), &prefix.prefix, &mut pages, |object| {
                found.insert(object.key);
                true
            })
            .await?;
            Ok::<_, StoreError>(((prefix, found), pages))
        }
    });
    let read: Vec<_> = reads.buffered(LISTS_AT_ONCE).try_collect().await?;
    let (prefixes, pages): (Vec<_>, Vec<u64>) = read.into_iter().unzip();
    Ok(Listed {
        prefixes,
        pages: pages.into_iter().sum(),
    })
}

impl Listed {
    fn position(&self, key: &str) -> Option<usize> {
        let mut prefixes = self.prefixes.iter();
        prefixes.position(|(prefix, _)| key.starts_with(&prefix.prefix))
    }

    /// Whether `key` was listed.
    pub(super) fn has(&self, key: &str) -> bool {
        self.position(key)
            .is_some_and(|at| self.prefixes[at].1.contains(key))
    }

    pub(super) fn forget(&mut self, key: &str) {
        if let Some(at) = self.position(key) {
            self.prefixes[at].1.remove(key);
        }
    }

    /// Returns the marks and progress that the names stand for.
    pub(super) fn objects(&self, m: &Manifest) -> ObjectsByJob {
        let jobs = m.jobs().keys();
        let mut objects: ObjectsByJob = jobs.map(|j| (j.clone(), JobObjects::new())).collect();
        for (prefix, found) in &self.prefixes {
            let attempt = objects
                .entry(prefix.job.clone())
                .or_default()
                .entry(prefix.attempt)
                .or_default();
            for key in found {
                attempt.note(key, prefix.dp_size, m.next_step());
            }
        }
        objects
    }

    /// Returns the names, other than `known`, on which a deletion rests, with their attempts: of jobs whose
    /// floor is above the watermark, the marks of the restart points that they keep; and the newest progress,
    /// also where it makes older progress obsolete.
    pub(super) fn deciding<'m>(
        &self,
        m: &'m Manifest,
        objects: &ObjectsByJob,
        known: &BTreeSet<String>,
    ) -> Vec<(String, &'m AttemptState)> {
        let mut deciding = Vec::new();
        for (prefix, found) in &self.prefixes {
            let Some((job, objects)) = m.jobs().get(&prefix.job).zip(objects.get(&prefix.job))
            else {
                continue;
            };
            let (Some(attempt), Some(own)) =
                (job.attempt(prefix.attempt), objects.get(&prefix.attempt))
            else {
                continue;
            };
            let moves = moves_watermark(job, objects, m.watermark());
            let kept = if moves {
                kept_points(job, objects)
            } else {
                BTreeSet::new()
            };
            let replaced = |key: &&String| !is_newest(key, own);
            let newest = moves || found.iter().any(|key| replaced(&key));
            let decides = |key: &&String| match keys::parse_mark(key) {
                Some(mark) => kept.contains(&mark.step),
                None => newest && !replaced(key),
            };
            let keys = found
                .iter()
                .filter(decides)
                .filter(|key| !known.contains(*key));
            deciding.extend(keys.map(|key| (key.clone(), attempt)));
        }
        deciding
    }
}

/// Whether the marks and progress of `job` would raise the watermark, if no other job retained data.
fn moves_watermark(job: &JobState, objects: &JobObjects, watermark: Step) -> bool {
    job.holds && retention::floor(job, objects).is_some_and(|floor| floor > watermark)
}

/// Returns the restart points that a job keeps: with one of them less, its floor would be lower.
fn kept_points(job: &JobState, objects: &JobObjects) -> BTreeSet<Step> {
    let points = retention::restart_points(job, objects);
    points
        .into_iter()
        .rev()
        .take(job.keep.max(1) as usize)
        .collect()
}

/// Whether a progress object is the newest of one of its coordinates.
fn is_newest(key: &str, objects: &AttemptObjects) -> bool {
    keys::parse_progress(key).is_some_and(|progress| {
        let at = objects.progress.range(progress.first..=progress.last);
        at.into_iter().any(|(_, newest)| *newest == progress.step)
    })
}

struct AttemptPrefix {
    job: JobName,
    attempt: u64,
    dp_size: u32,
    prefix: String,
}

fn prefixes(m: &Manifest) -> Vec<AttemptPrefix> {
    let mut prefixes = Vec::new();
    for (name, job) in m.jobs() {
        for attempt in relevant_attempts(job, m.watermark()) {
            let of_attempt = |prefix| AttemptPrefix {
                job: name.clone(),
                attempt: attempt.number,
                dp_size: attempt.dp_size,
                prefix,
            };
            prefixes.push(of_attempt(keys::marks(name, job.opened, attempt.number)));
            if attempt.number + 1 == job.attempts_opened() {
                prefixes.push(of_attempt(keys::progress_of(
                    name,
                    job.opened,
                    attempt.number,
                )));
            }
        }
    }
    prefixes
}

/// Returns the newest attempt, and the earlier ones whose marks are not all above a later start or below the
/// watermark. Points below the watermark cannot move it.
fn relevant_attempts(job: &JobState, watermark: Step) -> impl Iterator<Item = &AttemptState> {
    let mut lowest_later_start = Step::MAX;
    job.attempts.iter().rev().filter(move |attempt| {
        let listed = lowest_later_start == Step::MAX || !guards::skips_earlier_marks();
        let matters = listed && lowest_later_start >= watermark.max(attempt.start);
        lowest_later_start = lowest_later_start.min(attempt.start);
        matters
    })
}

/// Passes the objects below a prefix to `take` until it returns false; returns whether all were passed.
pub(super) async fn each(
    store: &dyn Store,
    prefix: &str,
    pages: &mut u64,
    mut take: impl FnMut(ObjectMeta) -> bool + Send,
) -> Result<bool, StoreError> {
    let mut listing = Pages::new(store, prefix);
    while let Some(objects) = listing.next().await? {
        *pages += 1;
        if !objects.into_iter().all(&mut take) {
            return Ok(false);
        }
    }
    Ok(true)
}
