//! Bundles that a producer's rights allow to forge: of a fork, of a log that was set back, of one that is planted.

use async_trait::async_trait;
use batchweave_core::limits::BUNDLE_RECORDS;
use batchweave_core::manifest::Bundle;
use batchweave_store::{StoreError, layer};
use bytes::Bytes;
use tokio::time::Instant;

use super::bundles::{bundles, followed, reader, step, try_step};
use crate::read::bundle::Bundled;
use crate::repair::{damage, repair};
use crate::testing::prelude::*;

const FOLLOWERS: u32 = 10_000;
/// Records of a fork; the reader has the first of them in reach.
const FORK: u64 = 20;

fn as_store(memory: &Arc<MemoryStore>) -> Arc<dyn Store> {
    Arc::clone(memory) as _
}

async fn copied(memory: &MemoryStore) -> Arc<MemoryStore> {
    let copy = MemoryStore::new();
    for key in memory.keys() {
        copy.overwrite(&key, memory.get(&key, u64::MAX).await.unwrap());
    }
    copy
}

/// A stream of a crowd, and a fork of it that another instance of its producer continues.
struct Forked {
    memory: Arc<MemoryStore>,
    producer: Committer,
    fork: Arc<MemoryStore>,
    /// The version at which the fork leaves the log.
    from: u64,
}

async fn forked() -> Forked {
    let memory = MemoryStore::new();
    let mut producer = followed(&as_store(&memory), FOLLOWERS).await;
    for _ in 0..4 {
        step(&mut producer).await;
    }
    let fork = copied(&memory).await;
    let from = producer.log().manifest().next_version();
    let mut forger = opened(&as_store(&fork), "p0", 77).await;
    while forger.log().manifest().next_version() < from + FORK {
        step(&mut forger).await;
    }
    Forked {
        memory,
        producer,
        fork,
        from,
    }
}

impl Forked {
    /// Stores a bundle of the fork for each of its versions, as its forger can.
    async fn store_bundles(&self) {
        let stream = self.producer.log().manifest().stream_id();
        for last in self.from..self.from + FORK {
            let first = (last + 1).saturating_sub(BUNDLE_RECORDS);
            let mut records = Vec::new();
            for version in first..=last {
                let record = self.fork.get(&keys::log(version), u64::MAX).await.unwrap();
                records.push(String::from_utf8(record.to_vec()).unwrap());
            }
            let bundle = Bundle {
                format: 1,
                stream,
                first,
                records,
            };
            let body = bundle.to_json().into();
            self.memory.overwrite(&keys::bundle(last), body);
        }
    }

    /// Plants the last record of the fork, beyond the log's end.
    async fn plant(&self) -> u64 {
        let last = self.from + FORK - 1;
        let record = self.fork.get(&keys::log(last), u64::MAX).await.unwrap();
        self.memory.overwrite(&keys::log(last), record);
        last
    }
}

/// Follows as one of a crowd for some time, or until an error.
async fn follow(log: &mut Log, minutes: u64) -> Result<(), LogError> {
    let (mut follower, start) = (Follower::default(), Instant::now());
    while start.elapsed() < Duration::from_mins(minutes) {
        let polled = follower.poll(log, FOLLOWERS, || start.elapsed()).await;
        if !polled? {
            let pause = follower.pause(log, Some(8), FOLLOWERS);
            tokio::time::sleep(pause.unwrap_or(Duration::from_millis(100))).await;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_record_of_a_fork_counts_that_the_log_does_not_hold() {
    let mut forked = forked().await;
    forked.store_bundles().await;
    let store = as_store(&forked.memory);
    let mut log = reader(&store).await;
    let real = log.manifest().clone();
    assert_eq!(real.next_version(), forked.from);
    for last in forked.from..forked.from + FORK {
        let outcome = log.catch_up_by_bundle(last).await.unwrap();
        assert_eq!(outcome, Bundled::Refused, "{last}");
    }
    follow(&mut log, 2).await.unwrap();
    assert!(*log.manifest() == real, "the log has nothing new");
    // The log goes on: it has other records of these versions, and bundles of its own.
    let end = Instant::now() + Duration::from_mins(2);
    let produce = async {
        while Instant::now() < end {
            step(&mut forked.producer).await;
        }
    };
    let (followed, ()) = futures::join!(follow(&mut log, 2), produce);
    followed.unwrap();
    log.catch_up().await.unwrap();
    assert!(log.manifest() == forked.producer.log().manifest());
    assert!(log.manifest().next_version() > forked.from + FORK);
}

#[tokio::test(start_paused = true)]
async fn a_writer_replaces_another_bundle_under_the_number_of_its_record() {
    let mut forked = forked().await;
    forked.store_bundles().await;
    let store = as_store(&forked.memory);
    for _ in 0..FORK {
        step(&mut forked.producer).await;
    }
    let stored = bundles(&store).await;
    assert!(stored.contains(&(forked.from + 3)), "{stored:?}");
    for last in stored {
        let bytes = store.get(&keys::bundle(last), u64::MAX).await.unwrap();
        let stream = forked.producer.log().manifest().stream_id();
        let bundle = Bundle::from_json(&bytes, stream, last).unwrap();
        let newest = bundle.records.last().unwrap();
        let record = store.get(&keys::log(last), u64::MAX).await.unwrap();
        assert_eq!(record, newest.as_bytes(), "{last}");
    }
}

/// A store in which the log is set back when a bundle is read.
#[derive(Debug)]
struct SetBack(Arc<MemoryStore>, u64);

#[async_trait]
impl layer::Intercept for SetBack {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let bytes = self.0.get(key, at_most).await;
        if key.starts_with(keys::BUNDLES) {
            self.0.delete(&keys::log(self.1)).await?;
        }
        bytes
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_set_back_after_its_bundle_was_read_gives_nothing() {
    let memory = MemoryStore::new();
    let mut producer = followed(&as_store(&memory), FOLLOWERS).await;
    let before = producer.log().manifest().next_version();
    let mut log = reader(&as_store(&memory)).await;
    for _ in 0..6 {
        step(&mut producer).await;
    }
    let last = before + 5;
    let set_back: Arc<dyn Store> = Arc::new(SetBack(Arc::clone(&memory), last));
    log.store = set_back;
    let outcome = log.catch_up_by_bundle(last).await.unwrap();
    assert_eq!(outcome, Bundled::Refused);
    assert_eq!(log.manifest().next_version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_fork_whose_last_record_is_planted_is_found_and_a_repair_ends_it() {
    let mut forked = forked().await;
    forked.store_bundles().await;
    let planted = forked.plant().await;
    let store = as_store(&forked.memory);
    let mut log = reader(&store).await;
    let outcome = log.catch_up_by_bundle(planted).await.unwrap();
    assert_eq!(outcome, Bundled::Folded, "the log holds its last record");
    let why = follow(&mut log, 60).await.unwrap_err();
    assert!(matches!(why, LogError::NotInLog { .. }), "{why}");
    // The next poll fails with the same error.
    let why = follow(&mut log, 60).await.unwrap_err();
    assert!(matches!(why, LogError::NotInLog { .. }), "{why}");
    // The writers come to the planted record, at which all stop.
    let stopped = loop {
        if let Err(why) = try_step(&mut forked.producer).await {
            break why;
        }
    };
    let at_planted =
        |why: &LogError| matches!(why, LogError::Fold(why) if why.version() == planted);
    assert!(at_planted(&stopped), "{stopped}");
    let found = damage(&store, &options(3)).await.unwrap().unwrap();
    assert_eq!(found.version, planted);
    let _ = repair(&store, &found, "planted", &options(3))
        .await
        .unwrap();
    let end = Instant::now() + Duration::from_mins(3);
    while Instant::now() < end {
        let _ = follow(&mut log, 1).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(log.reopened(), 1, "another fold replaced the fork's");
    let fresh = reader(&store).await;
    assert!(log.manifest() == fresh.manifest());
    assert_eq!(fresh.manifest().repaired(), [planted]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_read_of_the_last_record_is_repeated() {
    let memory = MemoryStore::new();
    let mut producer = followed(&as_store(&memory), FOLLOWERS).await;
    let mut log = reader(&as_store(&memory)).await;
    let before = log.manifest().next_version();
    for _ in 0..6 {
        step(&mut producer).await;
    }
    // The first read of the record finds another one, which is whole.
    let last = before + 5;
    let good = memory.get(&keys::log(last), u64::MAX).await.unwrap();
    let other = memory.get(&keys::log(last - 1), u64::MAX).await.unwrap();
    memory.overwrite(&keys::log(last), other);
    log.store = Arc::new(Restored(Arc::clone(&memory), keys::log(last), good));
    let outcome = log.catch_up_by_bundle(last).await.unwrap();
    assert_eq!(outcome, Bundled::Folded);
}

/// A store in which a key has its own bytes at a read over a new connection only.
#[derive(Debug)]
struct Restored(Arc<MemoryStore>, String, Bytes);

#[async_trait]
impl layer::Intercept for Restored {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        if key == self.1 {
            return Ok(self.2.clone());
        }
        self.0.get(key, at_most).await
    }
}
