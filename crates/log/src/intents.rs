//! Intents in the store: announcing our own, finding and reading those of others, deleting what is
//! done with. A failure here costs time, never correctness, so failures are told and passed over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{ProducerName, StreamId};
use batchweave_core::intent::{self, Selection};
use batchweave_core::keys;
use batchweave_core::limits::INTENTS_PER_ROUND;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_store::Store;
use futures::StreamExt;
use tokio::task::JoinSet;
use tracing::{debug, warn};

/// Pages of a list in one round; the next round goes on where this one stopped.
const PAGES_MAX: usize = 4;
/// Reads at once.
const READS_MAX: usize = 256;
/// Deletions at once; what does not fit is left to whoever leads.
const DELETES_MAX: usize = 32;
/// Dead intents of others deleted in a round.
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
    deletes: JoinSet<()>,
    refused: u64,
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
            deletes: JoinSet::new(),
            refused: 0,
        }
    }

    /// Objects under `intents/` that were none, so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
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
        let from_start = self.page.is_none();
        for _ in 0..PAGES_MAX {
            let page = match self.store.list(keys::INTENTS, self.page.take()).await {
                Ok(page) => page,
                Err(e) => {
                    warn!(error = %e, "intents were not listed");
                    break;
                }
            };
            listed.extend(page.objects.into_iter().map(|o| (o.key, o.size)));
            self.page = page.next;
            if self.page.is_none() {
                break;
            }
        }
        let Selection { wanted, dead } = intent::select(manifest, &listed, own, start);
        self.wanted = wanted;
        let whole = from_start && self.page.is_none();
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

    /// Reads what the list has shown; returns how many entries there are.
    pub(crate) async fn gather(&mut self) -> usize {
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
        for (key, read) in read {
            match read.map(|bytes| intent::decode(&key, &bytes, self.stream)) {
                Ok(Ok(entry)) => self.gathered.push(entry),
                Ok(Err(e)) => {
                    self.refused += 1;
                    warn!(error = %e, "an unusable intent is ignored");
                    self.delete(key);
                }
                // Its owner has deleted it: it is committed.
                Err(e) if e.is_not_found() => {}
                Err(e) => debug!(error = %e, "an intent was not read"),
            }
        }
        self.gathered.len()
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
