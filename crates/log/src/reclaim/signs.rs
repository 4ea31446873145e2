//! Reading the signs of jobs: LISTs of their attempts' marks and progress, nothing else.

use std::collections::BTreeMap;

use batchweave_core::ids::{JobName, Step};
use batchweave_core::keys;
use batchweave_core::lifecycle::JobSigns;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{AttemptState, JobState};
use batchweave_core::mutation::{self, Mutation};
use batchweave_store::{ObjectMeta, Store, StoreError};
use futures::{StreamExt, TryStreamExt, stream};

use crate::{Log, LogError};

/// Listings at once.
const LISTS_AT_ONCE: usize = 8;

/// All open jobs' signs.
pub(super) type Signs = BTreeMap<JobName, JobSigns>;

impl Log {
    /// What the open jobs' attempts say of where they stand and from where they can restart, by the
    /// state that is folded: marks and progress of the newest attempts, and the marks of those earlier
    /// ones that may still count.
    pub async fn signs(&mut self) -> Result<BTreeMap<JobName, JobSigns>, LogError> {
        Ok(read(self).await?.0)
    }
}

/// The signs, and how many pages were listed.
pub(super) async fn read(log: &mut Log) -> Result<(Signs, u64), LogError> {
    let (m, store) = (log.manifest().clone(), log.store.clone());
    let head = m.next_step();
    let folders = folders(&m);
    let reads = stream::iter(folders).map(|folder| {
        let store = store.clone();
        async move {
            let (mut found, mut pages) = (Vec::new(), 0);
            each(store.as_ref(), &folder.prefix, &mut pages, |object| {
                found.push(object.key);
                true
            })
            .await?;
            Ok::<_, StoreError>((folder, found, pages))
        }
    });
    let read: Vec<_> = reads.buffered(LISTS_AT_ONCE).try_collect().await?;
    let mut signs: Signs = m
        .jobs()
        .keys()
        .map(|j| (j.clone(), JobSigns::new()))
        .collect();
    let mut lists = 0;
    for (folder, found, pages) in read {
        lists += pages;
        let attempt = signs.entry(folder.job).or_default();
        let attempt = attempt.entry(folder.attempt).or_default();
        for key in found {
            attempt.note(&key, folder.dp_size, head);
        }
    }
    Ok((signs, lists))
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
        let listed = lowest_later_start == Step::MAX || !mutation::is(Mutation::EarlierMarks);
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
