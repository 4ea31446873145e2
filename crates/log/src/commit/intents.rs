//! Intents in the store: announcing our own, finding and reading those of others, deleting obsolete ones. A
//! failure here costs time, never correctness, so it is logged and ignored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::error::FormatError;
use batchweave_core::ids::{ProducerName, StreamId};
use batchweave_core::intent::{self, Candidacy, Selection};
use batchweave_core::keys;
use batchweave_core::limits::INTENTS_PER_ROUND;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_store::Store;
use futures::StreamExt;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use self::refused::RefusedIntents;
use crate::read::fitting::get_fitting;

mod refused;

/// Pages listed per round; the next round continues where this one stopped.
const PAGES_MAX: usize = 8;
/// Concurrent reads of intents.
const READS_MAX: usize = 256;
/// Concurrent delete requests; further intents are left to the next round.
const DELETES_MAX: usize = 4;
/// Intents deleted per round: one request.
const SWEPT_MAX: usize = 4000;
/// Obsolete intents that are remembered.
const OBSOLETE_MAX: usize = 2 * INTENTS_PER_ROUND;
/// An intent that is still listed this long after its deletion was requested, or after it first looked
/// unusual, is deleted.
const DELETED_AFTER: Duration = Duration::from_secs(10);
/// Own committed intents are left for the next leader to delete; from this number on we delete them.
const OWN_DONE_MAX: usize = 32;

/// The intents of one instance of a producer, and its view of those of others.
#[derive(Debug)]
pub(crate) struct Intents {
    store: Arc<dyn Store>,
    stream: StreamId,
    own: VecDeque<(Entry, String)>,
    /// Keys of our own obsolete intents.
    done: Vec<String>,
    page: Option<String>,
    wanted: Vec<String>,
    gathered: Vec<Entry>,
    /// Obsolete intents of others, with the time at which they first looked so or their deletion was
    /// requested; `None`: to be deleted next.
    obsolete: BTreeMap<String, Option<Duration>>,
    refused: RefusedIntents,
    deletes: JoinSet<()>,
}

impl Intents {
    pub(crate) fn new(store: Arc<dyn Store>, stream: StreamId) -> Self {
        Self {
            store,
            stream,
            own: VecDeque::new(),
            done: Vec::new(),
            page: None,
            wanted: Vec::new(),
            gathered: Vec::new(),
            obsolete: BTreeMap::new(),
            refused: RefusedIntents::default(),
            deletes: JoinSet::new(),
        }
    }

    /// The number of objects under `intents/` that were read and could not be committed.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.count()
    }

    /// Announces one of our own entries; returns whether the intent is durable.
    pub(crate) async fn announce(&mut self, entry: Entry) -> bool {
        let room = self.store.key_bytes_max();
        let Some((key, bytes)) = intent::encode(self.stream, &entry, room) else {
            return false;
        };
        match self.store.create(&key, bytes.into()).await {
            Ok(_) => {
                self.own.push_back((entry, key));
                true
            }
            Err(e) => {
                debug!(error = %e, "cannot store an intent");
                false
            }
        }
    }

    /// Forgets our oldest intents, while `is_done` holds for their entries.
    pub(crate) fn forget_own(&mut self, is_done: impl Fn(&Entry) -> bool) {
        while self.own.front().is_some_and(|(entry, _)| is_done(entry)) {
            self.done.extend(self.own.pop_front().map(|(_, key)| key));
        }
        if self.done.len() >= OWN_DONE_MAX {
            let done = std::mem::take(&mut self.done);
            self.delete(done);
        }
    }

    fn delete(&mut self, keys: Vec<String>) {
        while self.deletes.try_join_next().is_some() {}
        if keys.is_empty() || self.deletes.len() >= DELETES_MAX {
            return;
        }
        let store = Arc::clone(&self.store);
        self.deletes.spawn(async move {
            match store.delete_many(&keys).await {
                Ok(refused) => {
                    for (key, error) in refused {
                        debug!(key = %intent::stem(&key), %error, "cannot delete an intent");
                    }
                }
                Err(error) => debug!(%error, "cannot delete intents"),
            }
        });
    }

    /// Deletes the rest of our own obsolete intents. Deletions of others' intents continue in the background.
    pub(crate) async fn settle(&mut self) {
        self.deletes.detach_all();
        let done = std::mem::take(&mut self.done);
        self.delete(done);
        while self.deletes.join_next().await.is_some() {}
    }

    /// Lists intents; returns how many intents of others extend the committed state.
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
                    warn!(error = %e, "cannot list intents");
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
        let hopeless = self.refused.remove_from(&mut listed, manifest, whole);
        let Selection { wanted, dead, odd } = intent::select(manifest, &listed, own, start);
        self.wanted = wanted;
        let dead = hopeless.into_iter().chain(dead).map(|key| (key, true));
        self.sweep(
            dead.chain(odd.into_iter().map(|key| (key, false))),
            whole,
            now,
        );
        self.wanted.len()
    }

    /// Deletes intents that are surely obsolete, and those that have looked so for a while: this instance may
    /// know an old state. `whole`: all intents were listed, so one that is not in the list is gone; otherwise
    /// it is on another page.
    fn sweep(
        &mut self,
        obsolete: impl Iterator<Item = (String, bool)>,
        whole: bool,
        now: Duration,
    ) {
        let mut before = std::mem::take(&mut self.obsolete);
        let mut swept = std::mem::take(&mut self.done);
        for (key, surely) in obsolete.take(OBSOLETE_MAX) {
            let known = before.remove(&key);
            let mut since = known.unwrap_or((!surely).then_some(now));
            let due = since.is_none_or(|at| now.saturating_sub(at) > DELETED_AFTER);
            if due && swept.len() < SWEPT_MAX {
                since = Some(now);
                swept.push(key.clone());
            }
            self.obsolete.insert(key, since);
        }
        if !whole {
            let room = OBSOLETE_MAX.saturating_sub(self.obsolete.len());
            self.obsolete.extend(before.into_iter().take(room));
        }
        self.delete(swept);
    }

    /// Decodes the listed intents, reading those whose keys do not carry the entry; returns the number of
    /// entries that may be committed.
    pub(crate) async fn gather(&mut self, manifest: &Manifest) -> usize {
        let wanted = std::mem::take(&mut self.wanted);
        let (store, stream) = (&self.store, self.stream);
        let reads = wanted.into_iter().map(|key| async move {
            let entry = read(store.as_ref(), stream, &key).await;
            (key, entry)
        });
        let read: Vec<_> = futures::stream::iter(reads)
            .buffered(READS_MAX)
            .collect()
            .await;
        self.gathered.clear();
        for (key, entry) in read {
            let short = intent::stem(&key).into_owned();
            match entry {
                None => {}
                Some(Ok(entry)) => match intent::candidacy(manifest, &entry) {
                    Candidacy::Candidate => self.gathered.push(entry),
                    Candidacy::NotNow(reason) => {
                        debug!(key = short, %reason, "an intent cannot be committed at present");
                        self.refused.not_now(key, manifest);
                    }
                    Candidacy::Never(reason) => {
                        warn!(key = short, %reason, "ignoring an intent that can never be committed");
                        self.refused.never(key);
                    }
                },
                Some(Err(e)) => {
                    warn!(error = %e, "ignoring an unusable intent");
                    self.refused.never(key);
                }
            }
        }
        self.gathered.len()
    }

    /// Returns the entries of the last round, and forgets them.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.gathered)
    }
}

/// Returns the entry of the intent at `key`, from the key itself or from the object; `None` when the object
/// cannot be read.
async fn read(
    store: &dyn Store,
    stream: StreamId,
    key: &str,
) -> Option<Result<Entry, FormatError>> {
    if let Some(carried) = intent::carried(key) {
        return Some(carried.and_then(|bytes| intent::decode(key, &bytes, stream)));
    }
    match get_fitting(store, key, |bytes| intent::decode(key, bytes, stream)).await {
        Ok(read) => Some(read),
        Err(e) => {
            // Not found: it was deleted, so it is committed.
            if !e.is_not_found() {
                debug!(error = %e, "cannot read an intent");
            }
            None
        }
    }
}

/// Deletions complete, those under way and those still to be requested, even if the producer continues with
/// another committer.
impl Drop for Intents {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            let done = std::mem::take(&mut self.done);
            self.delete(done);
        }
        self.deletes.detach_all();
    }
}
