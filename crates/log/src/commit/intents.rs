//! Intents in the store: announcing our own, finding and reading those of others, deleting what is
//! done with. A failure here costs time, never correctness, so failures are told and passed over.

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

use self::refused::Useless;
use crate::read::retrying::get_intact;

mod refused;

/// Pages of a list in one round; the next round goes on where this one stopped.
const PAGES_MAX: usize = 8;
/// Reads at once.
const READS_MAX: usize = 256;
/// Requests to delete at once; what does not fit is left to the next list.
const DELETES_MAX: usize = 4;
/// Intents deleted in a round: one request.
const SWEPT_MAX: usize = 4000;
/// Intents that are remembered as being deleted.
const DOOMED_MAX: usize = 2 * INTENTS_PER_ROUND;
/// What is still listed so long after it was to be deleted, or seemed odd, is deleted.
const DELETED_AFTER: Duration = Duration::from_secs(10);
/// Own intents that are done with are left to whoever lists next; so many we delete ourselves.
const OWN_DONE_MAX: usize = 32;

/// The intents of one instance of a producer, and its view of the others'.
#[derive(Debug)]
pub(crate) struct Intents {
    store: Arc<dyn Store>,
    stream: StreamId,
    own: VecDeque<(Entry, String)>,
    /// Ours that are done with.
    done: Vec<String>,
    page: Option<String>,
    wanted: Vec<String>,
    gathered: Vec<Entry>,
    /// Of no use, and since when they seem so or when their deletion was asked for; `None`: it is to
    /// be.
    doomed: BTreeMap<String, Option<Duration>>,
    useless: Useless,
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
            doomed: BTreeMap::new(),
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
                debug!(error = %e, "an intent was not stored");
                false
            }
        }
    }

    /// Gives up our intents that `is_done`.
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
                        debug!(key = %intent::stem(&key), %error, "an intent was not deleted");
                    }
                }
                Err(error) => debug!(%error, "intents were not deleted"),
            }
        });
    }

    /// Deletes what is left of ours. What is under way for others goes on behind.
    pub(crate) async fn settle(&mut self) {
        self.deletes.detach_all();
        let done = std::mem::take(&mut self.done);
        self.delete(done);
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

    /// Deletes what is surely of no use any more, and what seems so for long: who lists may know an
    /// old state. `whole`: all intents were listed, so what is not in the list is gone; otherwise it
    /// stands on another page.
    fn sweep(&mut self, useless: impl Iterator<Item = (String, bool)>, whole: bool, now: Duration) {
        let mut before = std::mem::take(&mut self.doomed);
        let mut swept = std::mem::take(&mut self.done);
        for (key, surely) in useless.take(DOOMED_MAX) {
            let known = before.remove(&key);
            let mut since = known.unwrap_or((!surely).then_some(now));
            let due = since.is_none_or(|at| now.saturating_sub(at) > DELETED_AFTER);
            if due && swept.len() < SWEPT_MAX {
                since = Some(now);
                swept.push(key.clone());
            }
            self.doomed.insert(key, since);
        }
        if !whole {
            let room = DOOMED_MAX.saturating_sub(self.doomed.len());
            self.doomed.extend(before.into_iter().take(room));
        }
        self.delete(swept);
    }

    /// Takes what the list has shown, and reads what keys do not carry; returns how many entries there
    /// are that may be committed.
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
                        debug!(key = short, %reason, "an intent is of no use at present");
                        self.useless.not_now(key, manifest);
                    }
                    Candidacy::Never(reason) => {
                        warn!(key = short, %reason, "an intent that can't be committed is ignored");
                        self.useless.never(key);
                    }
                },
                Some(Err(e)) => {
                    warn!(error = %e, "an unusable intent is ignored");
                    self.useless.never(key);
                }
            }
        }
        self.gathered.len()
    }

    /// What the last round has gathered.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.gathered)
    }
}

/// The entry of the intent at `key`, from the key itself or from the object; `None`: it was not read.
async fn read(
    store: &dyn Store,
    stream: StreamId,
    key: &str,
) -> Option<Result<Entry, FormatError>> {
    if let Some(carried) = intent::carried(key) {
        return Some(carried.and_then(|bytes| intent::decode(key, &bytes, stream)));
    }
    match get_intact(store, key).await {
        Ok(bytes) => Some(intent::decode(key, &bytes, stream)),
        Err(e) => {
            // Not found: it has been deleted, so it is committed.
            if !e.is_not_found() {
                debug!(error = %e, "an intent was not read");
            }
            None
        }
    }
}

/// What is being deleted is deleted, and what is to be, even if its producer goes on under another
/// committer.
impl Drop for Intents {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            let done = std::mem::take(&mut self.done);
            self.delete(done);
        }
        self.deletes.detach_all();
    }
}
