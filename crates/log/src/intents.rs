//! Intents in the store: announcing our own, finding and reading those of others, deleting what is
//! done with. A failure here costs time, never correctness, so failures are told and passed over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{ProducerName, StreamId};
use batchweave_core::intent::{self, Selection, Worth};
use batchweave_core::keys;
use batchweave_core::limits::INTENTS_PER_ROUND;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_store::Store;
use futures::StreamExt;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use self::useless::Useless;

mod useless;

/// Pages of a list in one round; the next round goes on where this one stopped.
const PAGES_MAX: usize = 4;
/// Reads at once.
const READS_MAX: usize = 256;
/// Deletions at once; what does not fit is left to whoever leads.
const DELETES_MAX: usize = 32;
/// Dead intents of others deleted in a round, and as many that were refused.
const SWEPT_MAX: usize = 16;
/// Dead intents that are remembered from round to round.
const SUSPECTS_MAX: usize = 8 * INTENTS_PER_ROUND;
/// An owner that lives has deleted a dead intent by then.
const OWNERLESS_AFTER: Duration = Duration::from_secs(10);

/// The intents of one instance of a producer, and its view of the others'.
#[derive(Debug)]
pub(crate) struct Intents {
    store: Arc<dyn Store>,
    stream: StreamId,
    own: VecDeque<(Entry, String)>,
    page: Option<String>,
    wanted: Vec<String>,
    gathered: Vec<Entry>,
    /// Dead, and since when they are seen so: owners delete theirs themselves, so what is still
    /// there after a while has none.
    suspects: BTreeMap<String, Duration>,
    useless: Useless,
    deletes: JoinSet<()>,
}

impl Intents {
    pub(crate) fn new(store: Arc<dyn Store>, stream: StreamId) -> Self {
        Self {
            store,
            stream,
            own: VecDeque::new(),
            page: None,
            wanted: Vec::new(),
            gathered: Vec::new(),
            suspects: BTreeMap::new(),
            useless: Useless::default(),
            deletes: JoinSet::new(),
        }
    }

    /// Objects under `intents/` that were read and could not be committed, so far.
    pub(crate) fn refused(&self) -> u64 {
        self.useless.count()
    }

    /// Announces one of our own entries; true when it is durable.
    pub(crate) async fn announce(&mut self, entry: Entry) -> bool {
        let Some((key, bytes)) = intent::encode(self.stream, &entry) else {
            return false;
        };
        match self.store.create(&key, bytes.into()).await {
            Ok(_) => {
                self.own.push_back((entry, key));
                true
            }
            Err(e) => {
                debug!(error = %e, "an intent was not stored");
                false
            }
        }
    }

    /// Deletes our intents that `is_done`.
    pub(crate) fn forget_own(&mut self, is_done: impl Fn(&Entry) -> bool) {
        while self.own.front().is_some_and(|(entry, _)| is_done(entry)) {
            if let Some((_, key)) = self.own.pop_front() {
                self.delete(key);
            }
        }
    }

    fn delete(&mut self, key: String) {
        while self.deletes.try_join_next().is_some() {}
        if self.deletes.len() < DELETES_MAX {
            let store = Arc::clone(&self.store);
            self.deletes.spawn(async move {
                if let Err(e) = store.delete(&key).await {
                    debug!(error = %e, "an intent was not deleted");
                }
            });
        }
    }

    /// Waits for deletions under way.
    pub(crate) async fn settle(&mut self) {
        while self.deletes.join_next().await.is_some() {}
    }

    /// Lists intents; returns how many of others extend what is committed.
    pub(crate) async fn list(
        &mut self,
        manifest: &Manifest,
        own: &ProducerName,
        start: u64,
        now: Duration,
    ) -> usize {
        let mut listed = Vec::new();
        let mut whole = self.page.is_none();
        for _ in 0..PAGES_MAX {
            let page = match self.store.list(keys::INTENTS, self.page.take()).await {
                Ok(page) => page,
                Err(e) => {
                    warn!(error = %e, "intents were not listed");
                    whole = false;
                    break;
                }
            };
            listed.extend(page.objects.into_iter().map(|o| (o.key, o.size)));
            self.page = page.next;
            if self.page.is_none() {
                break;
            }
        }
        whole &= self.page.is_none();
        let hopeless = self.useless.sort_out(&mut listed, manifest, whole);
        for key in hopeless.into_iter().take(SWEPT_MAX) {
            self.delete(key);
        }
        let Selection { wanted, dead } = intent::select(manifest, &listed, own, start);
        self.wanted = wanted;
        self.sweep(dead, whole, now);
        self.wanted.len()
    }

    /// Deletes what has been dead for long. `whole`: all intents were listed, so what is not in the
    /// list is gone; otherwise it stands on another page.
    fn sweep(&mut self, dead: Vec<String>, whole: bool, now: Duration) {
        let mut before = std::mem::take(&mut self.suspects);
        let mut swept = 0;
        for key in dead.into_iter().take(SUSPECTS_MAX) {
            let since = before.remove(&key).unwrap_or(now);
            if swept < SWEPT_MAX && now.saturating_sub(since) > OWNERLESS_AFTER {
                swept += 1;
                self.delete(key);
            } else {
                self.suspects.insert(key, since);
            }
        }
        if !whole {
            let room = SUSPECTS_MAX.saturating_sub(self.suspects.len());
            self.suspects.extend(before.into_iter().take(room));
        }
    }

    /// Reads what the list has shown; returns how many entries there are that may be committed.
    pub(crate) async fn gather(&mut self, manifest: &Manifest) -> usize {
        let wanted = std::mem::take(&mut self.wanted);
        let store = &self.store;
        let reads = wanted.into_iter().map(|key| async move {
            let read = store.get(&key).await;
            (key, read)
        });
        let read: Vec<_> = futures::stream::iter(reads)
            .buffered(READS_MAX)
            .collect()
            .await;
        self.gathered.clear();
        let mut deleted = 0;
        for (key, read) in read {
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(e) => {
                    // Not found: its owner has deleted it, so it is committed.
                    if !e.is_not_found() {
                        debug!(error = %e, "an intent was not read");
                    }
                    continue;
                }
            };
            match intent::decode(&key, &bytes, self.stream) {
                Ok(entry) => match intent::worth(manifest, &entry) {
                    Worth::Candidate => self.gathered.push(entry),
                    Worth::NotNow(reason) => {
                        debug!(key, %reason, "an intent is of no use at present");
                        self.useless.not_now(key, manifest);
                    }
                    Worth::Never(reason) => {
                        warn!(key, %reason, "an intent that can't be committed is ignored");
                        self.refuse(key, &mut deleted);
                    }
                },
                Err(e) => {
                    warn!(error = %e, "an unusable intent is ignored");
                    self.refuse(key, &mut deleted);
                }
            }
        }
        self.gathered.len()
    }

    /// Some go at once, the others when the next lists show them again.
    fn refuse(&mut self, key: String, deleted: &mut usize) {
        if *deleted < SWEPT_MAX {
            *deleted += 1;
            self.delete(key.clone());
        }
        self.useless.never(key);
    }

    /// What the last round has gathered.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.gathered)
    }
}

/// What is being deleted is deleted, even if its producer goes on under another committer.
impl Drop for Intents {
    fn drop(&mut self) {
        self.deletes.detach_all();
    }
}
