//! Reading the signs of jobs: LISTs of their attempts' marks and progress, and which of them decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::guards;
use batchweave_core::ids::{JobName, Step};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{AttemptState, JobState};
use batchweave_core::retention::JobObjects;
use batchweave_store::{ObjectMeta, Store, StoreError};
use futures::{StreamExt, TryStreamExt, stream};

use super::verified;
use crate::{Log, LogError};

/// Listings at once.
const LISTS_AT_ONCE: usize = 8;

/// All open jobs' signs.
pub(super) type Signs = BTreeMap<JobName, JobObjects>;

impl Log {
    /// What the open jobs' attempts say of where they stand and from where they can restart, by the
    /// state that is folded and by names alone: marks and progress of the newest attempts, and the marks
    /// of those earlier ones that may still count.
    pub async fn job_objects(&mut self) -> Result<BTreeMap<JobName, JobObjects>, LogError> {
        Ok(list(self).await?.signs(self.manifest()))
    }
}

/// The names that count, by what they lie in.
pub(super) struct Listed {
    folders: Vec<(Folder, BTreeSet<String>)>,
    /// How many pages they came on.
    pub(super) pages: u64,
}

/// Lists marks and progress.
pub(super) async fn list(log: &Log) -> Result<Listed, LogError> {
    let store = Arc::clone(&log.store);
    let reads = stream::iter(folders(log.manifest())).map(|folder| {
        let store = Arc::clone(&store);
        async move {
            let (mut found, mut pages) = (BTreeSet::new(), 0);
            each(store.as_ref(), &folder.prefix, &mut pages, |object| {
                found.insert(object.key);
                true
            })
            .await?;
            Ok::<_, StoreError>(((folder, found), pages))
        }
    });
    let read: Vec<_> = reads.buffered(LISTS_AT_ONCE).try_collect().await?;
    let (folders, pages): (Vec<_>, Vec<u64>) = read.into_iter().unzip();
    Ok(Listed {
        folders,
        pages: pages.into_iter().sum(),
    })
}

impl Listed {
    fn of(&self, key: &str) -> Option<usize> {
        let mut folders = self.folders.iter();
        folders.position(|(folder, _)| key.starts_with(&folder.prefix))
    }

    /// Whether a name was listed.
    pub(super) fn has(&self, key: &str) -> bool {
        self.of(key)
            .is_some_and(|at| self.folders[at].1.contains(key))
    }

    /// Forgets a name.
    pub(super) fn drop(&mut self, key: &str) {
        if let Some(at) = self.of(key) {
            self.folders[at].1.remove(key);
        }
    }

    /// What the names say.
    pub(super) fn signs(&self, m: &Manifest) -> Signs {
        let jobs = m.jobs().keys();
        let mut signs: Signs = jobs.map(|j| (j.clone(), JobObjects::new())).collect();
        for (folder, found) in &self.folders {
            let attempt = signs.entry(folder.job.clone()).or_default();
            let attempt = attempt.entry(folder.attempt).or_default();
            for key in found {
                attempt.note(key, folder.dp_size, m.next_step());
            }
        }
        signs
    }

    /// The names but `known` on which it hangs what is given up, with their attempts: of jobs whose floor
    /// is above the watermark, the marks of the restart points that they keep; and the newest progress,
    /// also where older is to be deleted for it.
    pub(super) fn deciding<'m>(
        &self,
        m: &'m Manifest,
        signs: &Signs,
        known: &BTreeSet<String>,
    ) -> Vec<(String, &'m AttemptState)> {
        let mut deciding = Vec::new();
        for (folder, found) in &self.folders {
            let Some((job, signs)) = m.jobs().get(&folder.job).zip(signs.get(&folder.job)) else {
                continue;
            };
            let (Some(attempt), Some(own)) =
                (job.attempt(folder.attempt), signs.get(&folder.attempt))
            else {
                continue;
            };
            let moves = verified::moves(job, signs, m.watermark());
            let kept = if moves {
                verified::kept(job, signs)
            } else {
                BTreeSet::new()
            };
            let replaced = |key: &&String| !verified::is_newest(key, own);
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

struct Folder {
    job: JobName,
    attempt: u64,
    dp_size: u32,
    prefix: String,
}

fn folders(m: &Manifest) -> Vec<Folder> {
    let mut folders = Vec::new();
    for (name, job) in m.jobs() {
        for attempt in that_matter(job, m.watermark()) {
            let folder = |prefix| Folder {
                job: name.clone(),
                attempt: attempt.number,
                dp_size: attempt.dp_size,
                prefix,
            };
            folders.push(folder(keys::marks(name, job.opened, attempt.number)));
            if attempt.number + 1 == job.attempts_opened() {
                folders.push(folder(keys::progress_of(name, job.opened, attempt.number)));
            }
        }
    }
    folders
}

/// The newest attempt, and those before it whose marks are not all above a later start or below
/// the watermark. Points below the watermark can't move it.
fn that_matter(job: &JobState, watermark: Step) -> impl Iterator<Item = &AttemptState> {
    let mut lowest_later_start = Step::MAX;
    job.attempts.iter().rev().filter(move |attempt| {
        let listed = lowest_later_start == Step::MAX || !guards::skips_earlier_marks();
        let matters = listed && lowest_later_start >= watermark.max(attempt.start);
        lowest_later_start = lowest_later_start.min(attempt.start);
        matters
    })
}

/// Lists a prefix page by page, until `take` has had enough; false when it has.
pub(super) async fn each(
    store: &dyn Store,
    prefix: &str,
    pages: &mut u64,
    mut take: impl FnMut(ObjectMeta) -> bool + Send,
) -> Result<bool, StoreError> {
    let mut page = None;
    loop {
        *pages += 1;
        let listed = store.list(prefix, page).await?;
        for object in listed.objects {
            if !take(object) {
                return Ok(false);
            }
        }
        page = listed.next;
        if page.is_none() {
            return Ok(true);
        }
    }
}
