//! One read of a whole object returns the bytes of its neighbour, those of another root at the same key, or its own
//! bytes rotated; all reads after it are right. It changes nothing: each read of each kind of work in turn.

use std::sync::Mutex;

use async_trait::async_trait;
use batchweave_core::fixtures;
use batchweave_core::stream::StreamOrder;
use batchweave_store::{StoreError, layer};
use bytes::Bytes;

use crate::testing::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Wrong {
    Neighbour,
    /// The root was removed and made anew, and a cache still has its first objects.
    Older,
    Rotated,
}

/// A store of which one read is wrong.
#[derive(Debug)]
struct Misreading {
    inner: Arc<dyn Store>,
    /// Another root with objects at the same keys.
    older: Arc<dyn Store>,
    /// How many reads come before the wrong one.
    armed: Mutex<Option<(u64, Wrong)>>,
    /// The keys of which wrong bytes were returned.
    told: Mutex<Vec<String>>,
}

impl Misreading {
    async fn around(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(store),
            older: root(4, 400).await.0,
            armed: Mutex::default(),
            told: Mutex::default(),
        })
    }

    /// Does `work` with each of its reads wrong in each way. Returns the keys of the wrong reads.
    async fn each(&self, mut work: impl AsyncFnMut()) -> Vec<String> {
        for how in [Wrong::Neighbour, Wrong::Older, Wrong::Rotated] {
            for reads in 0.. {
                *self.armed.lock().unwrap() = Some((reads, how));
                work().await;
                if self.armed.lock().unwrap().take().is_some() {
                    break;
                }
            }
        }
        std::mem::take(&mut self.told.lock().unwrap())
    }

    fn is_wrong(&self) -> Option<Wrong> {
        let mut armed = self.armed.lock().unwrap();
        let (reads, how) = armed.as_mut()?;
        if let Some(left) = reads.checked_sub(1) {
            *reads = left;
            return None;
        }
        let how = *how;
        *armed = None;
        Some(how)
    }

    async fn other(&self, key: &str, how: Wrong, bytes: &Bytes) -> Option<Bytes> {
        match how {
            Wrong::Neighbour => {
                let folder = key.rfind('/').map(|at| &key[..=at])?;
                let listed = self.inner.list(folder, None).await.unwrap().objects;
                let other = listed.into_iter().find(|object| object.key != key)?;
                Some(self.inner.get(&other.key, u64::MAX).await.unwrap())
            }
            Wrong::Older => self.older.get(key, u64::MAX).await.ok(),
            Wrong::Rotated => {
                let (head, tail) = bytes.split_at(bytes.len() / 3);
                Some([tail, head].concat().into())
            }
        }
    }
}

#[async_trait]
impl layer::Intercept for Misreading {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let bytes = self.inner.get(key, at_most).await?;
        let Some(how) = self.is_wrong() else {
            return Ok(bytes);
        };
        let Some(other) = self.other(key, how, &bytes).await else {
            return Ok(bytes);
        };
        if other != bytes {
            self.told.lock().unwrap().push(key.to_owned());
        }
        Ok(other)
    }
}

/// A root with a log of `versions` records, and its producer.
async fn root(id: u8, versions: u64) -> (Arc<dyn Store>, Committer) {
    let store: Arc<dyn Store> = MemoryStore::new();
    let config = fixtures::stream([id; 16], StreamOrder::Arrival, Vec::new());
    let _ = create(&store, &config).await.unwrap();
    let mut producer = opened(&store, "p0", id).await;
    grow(&mut producer, versions).await;
    (store, producer)
}

async fn grow(producer: &mut Committer, versions: u64) {
    while producer.log().manifest().next_version() < versions {
        let _ = commit(producer, 10).await;
    }
    producer.log_mut().settle_snapshots().await;
}

fn reading() -> LogOptions {
    LogOptions {
        write_snapshots: false,
        ..options(77)
    }
}

#[track_caller]
fn include(told: &[String], parts: &[&str]) {
    for part in parts {
        assert!(
            told.iter().any(|key| key.contains(part)),
            "{part}: {told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn opening_a_log_and_finding_an_old_step_survive_any_misread() {
    let (store, producer) = root(3, 280).await;
    let wrong = Misreading::around(&store).await;
    let mine: Arc<dyn Store> = Arc::clone(&wrong) as _;
    let told = wrong
        .each(async || {
            let mut log = Log::open(Arc::clone(&mine), &reading()).await.unwrap();
            assert!(log.manifest() == producer.log().manifest());
            let found = log.locate(5).await.unwrap();
            assert!(matches!(found, Located::At(entry) if entry.seq == 5));
        })
        .await;
    include(&told, &[keys::STREAM, keys::LOG, keys::SNAPSHOTS, "index/"]);
}

#[tokio::test(start_paused = true)]
async fn following_a_log_survives_any_misread() {
    let (store, mut producer) = root(3, 20).await;
    let wrong = Misreading::around(&store).await;
    let mut log = Log::open(Arc::clone(&wrong) as _, &reading())
        .await
        .unwrap();
    let told = wrong
        .each(async || {
            let head = producer.log().manifest().next_version();
            grow(&mut producer, head + 6).await;
            log.catch_up().await.unwrap();
            assert!(log.manifest() == producer.log().manifest());
        })
        .await;
    include(&told, &[keys::LOG]);
    assert_eq!((log.manifest().void_records(), log.reopened()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_second_fold_survives_any_misread() {
    let (store, _) = root(3, 12).await;
    let wrong = Misreading::around(&store).await;
    let log = Log::open(Arc::clone(&wrong) as _, &reading())
        .await
        .unwrap();
    let told = wrong.each(async || log.confirm().await.unwrap()).await;
    include(&told, &[keys::STREAM, keys::LOG]);
}

/// A writer that loses a version reads the winner's record.
#[tokio::test(start_paused = true)]
async fn committing_survives_any_misread() {
    let (store, mut other) = root(3, 20).await;
    let wrong = Misreading::around(&store).await;
    let mine: Arc<dyn Store> = Arc::clone(&wrong) as _;
    let mut producer = opened(&mine, "p1", 9).await;
    let told = wrong
        .each(async || {
            while !matches!(commit(&mut other, 1).await, Commit::Committed { .. }) {}
            while !matches!(commit(&mut producer, 1).await, Commit::Committed { .. }) {}
        })
        .await;
    include(&told, &[keys::LOG]);
    let reader = Log::open(store, &reading()).await.unwrap();
    assert_eq!(reader.manifest().void_records(), 0);
    assert_eq!(reader.manifest().void_entries(), 0);
    assert!(reader.manifest() == producer.log().manifest());
}
