//! Bundles of records: who writes them, what a follower takes from them, and what it ignores.

use std::sync::Mutex;

use async_trait::async_trait;
use batchweave_core::ids::{AttemptId, RequestId};
use batchweave_core::json::sign_again;
use batchweave_core::limits::{BUNDLE_COORDINATES, BUNDLES_KEPT};
use batchweave_core::manifest::Bundle;
use batchweave_core::manifest::entry::{AttemptOpened, JobOpened};
use batchweave_store::testing::faults::{FaultStore, Rates};
use batchweave_store::{Create, Effect, ErrorKind, Op, StoreError, layer};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::testing::prelude::*;

/// A stream whose newest attempt has this many data coordinates.
pub(super) async fn followed(store: &Arc<dyn Store>, coordinates: u32) -> Committer {
    let config = batchweave_core::stream::StreamConfig {
        slices: coordinates,
        ..config(&[])
    };
    let _ = create(store, &config).await.unwrap();
    let mut log = Log::open(Arc::clone(store), &options(9)).await.unwrap();
    let job: batchweave_core::ids::JobName = "run".parse().unwrap();
    let entry = Entry::JobOpened(JobOpened {
        request: RequestId([1; 16]),
        job: job.clone(),
        start: 0,
        keep: 1,
        holds: true,
        paces: false,
        lease_seconds: None,
    });
    let opened = log.commit_entry("t", |_| entry.clone()).await.unwrap();
    let entry = Entry::AttemptOpened(AttemptOpened {
        job,
        opened: opened.unwrap(),
        attempt: AttemptId([1; 16]),
        predecessor: None,
        parent: None,
        inherited: None,
        start: 0,
        dp_size: coordinates,
        mesh: Vec::new(),
    });
    log.commit_entry("t", |_| entry.clone())
        .await
        .unwrap()
        .unwrap();
    opened_by(store).await
}

async fn opened_by(store: &Arc<dyn Store>) -> Committer {
    crate::testing::opened(store, "p0", 1).await
}

/// Commits a batch with a slice for each coordinate, half a second after the last one.
pub(super) async fn step(producer: &mut Committer) {
    let committed = try_step(producer).await.unwrap();
    assert!(matches!(committed, Commit::Committed { .. }));
    sleep(Duration::from_millis(500)).await;
}

pub(super) async fn try_step(producer: &mut Committer) -> Result<Commit, LogError> {
    let mut next = item(producer, producer.next_seq(), 1);
    let slices = producer.log().manifest().stream().slices;
    for tgb in &mut next.tgbs {
        (tgb.rows, tgb.tokens) = (slices.into(), u64::from(slices) * 8);
        for part in &mut tgb.parts {
            (part.slices, part.length) = (slices, u64::from(slices) * 256);
            (part.frame_bytes, part.index) = (Some(256), None);
        }
    }
    producer.try_commit(next.tgbs, next.cursor).await
}

pub(super) async fn bundles(store: &Arc<dyn Store>) -> Vec<u64> {
    let mut found = Vec::new();
    batchweave_store::list_all(store.as_ref(), keys::BUNDLES, |object| {
        found.extend(keys::bundle_version(&object.key));
    })
    .await
    .unwrap();
    found.sort_unstable();
    found
}

pub(super) async fn reader(store: &Arc<dyn Store>) -> Log {
    let options = LogOptions {
        write_snapshots: false,
        ..options(7)
    };
    Log::open(Arc::clone(store), &options).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_crowd_has_bundles_of_the_newest_records_and_others_have_none() {
    for (coordinates, some) in [(BUNDLE_COORDINATES - 1, false), (BUNDLE_COORDINATES, true)] {
        let store: Arc<dyn Store> = MemoryStore::new();
        let mut producer = followed(&store, coordinates).await;
        for _ in 0..BUNDLES_KEPT + 20 {
            step(&mut producer).await;
        }
        let (found, next) = (
            bundles(&store).await,
            producer.log().manifest().next_version(),
        );
        if !some {
            assert!(found.is_empty(), "{found:?}");
            continue;
        }
        assert_eq!(found, (next - BUNDLES_KEPT..next).collect::<Vec<_>>());
        for last in found {
            let bytes = store.get(&keys::bundle(last), u64::MAX).await.unwrap();
            let stream = producer.log().manifest().stream_id();
            let bundle = Bundle::from_json(&bytes, stream, last).unwrap();
            for (version, record) in (bundle.first..).zip(bundle.records) {
                let stored = store.get(&keys::log(version), u64::MAX).await.unwrap();
                assert_eq!(stored, record.as_bytes(), "{version}");
            }
        }
    }
}

/// Follows the log until then, as one of many.
async fn follow(log: &mut Log, lead: u64, until: Instant) {
    let (mut follower, start) = (Follower::default(), Instant::now());
    while Instant::now() < until {
        let polled = follower.poll(log, 10_000, || start.elapsed()).await;
        if !polled.unwrap() {
            let pause = follower.pause(log, Some(lead), 10_000);
            sleep(pause.unwrap_or(Duration::from_millis(100))).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_reads_many_records_by_one_request() {
    let memory: Arc<dyn Store> = MemoryStore::new();
    let mut producer = followed(&memory, 10_000).await;
    let counted = Scripted::new(Arc::clone(&memory));
    let store: Arc<dyn Store> = Arc::clone(&counted) as _;
    let mut log = reader(&store).await;
    let before = (*counted.gets.lock().unwrap(), log.manifest().next_version());
    let end = Instant::now() + Duration::from_mins(5);
    let produce = async {
        while Instant::now() < end {
            step(&mut producer).await;
        }
    };
    futures::join!(produce, follow(&mut log, 64, end));
    let gets = *counted.gets.lock().unwrap() - before.0;
    let records = log.manifest().next_version() - before.1;
    assert!(records > 570, "{records} records");
    // A bundle costs two: the record that proves it is read, too.
    assert!(gets * 4 < records, "{gets} reads of {records} records");
    log.catch_up().await.unwrap();
    assert!(log.manifest() == producer.log().manifest());
}

#[tokio::test(start_paused = true)]
async fn faults_of_the_store_change_nothing_that_is_folded() {
    for seed in 0..20 {
        let memory: Arc<dyn Store> = MemoryStore::new();
        let mut producer = followed(&memory, 10_000).await;
        let rough = FaultStore::everywhere(Arc::clone(&memory), seed, Rates::rough());
        let store: Arc<dyn Store> = Arc::new(rough);
        let mut log = reader(&memory).await;
        log.store = crate::read::retrying::RetryingReads::around(store, log.clock.clone());
        let end = Instant::now() + Duration::from_mins(1);
        let produce = async {
            while Instant::now() < end {
                step(&mut producer).await;
            }
        };
        futures::join!(produce, follow(&mut log, 8, end));
        let mut again = reader(&memory).await;
        again.catch_up().await.unwrap();
        assert!(log.manifest().next_version() > 60, "seed {seed}");
        log.catch_up().await.unwrap();
        assert!(log.manifest() == again.manifest(), "seed {seed}");
    }
}

type Damage = fn(&str) -> Vec<u8>;

#[tokio::test(start_paused = true)]
async fn a_bundle_that_does_not_continue_the_log_is_ignored() {
    let cases: [(&str, Damage); 5] = [
        ("truncated", |t| t[..t.len() - 9].into()),
        ("a flipped byte", |t| {
            t.replacen("\\\"version\\\":7", "\\\"version\\\":8", 1)
                .into()
        }),
        ("a forged record", |t| {
            sign_again(
                t.replace("\\\"leads\\\":false", "\\\"leads\\\":true")
                    .as_bytes(),
            )
            .unwrap()
        }),
        ("of another stream", |t| {
            sign_again(t.replacen("03030303-", "04040404-", 1).as_bytes()).unwrap()
        }),
        ("other versions", |t| {
            sign_again(t.replacen("\"first\":", "\"first\":1", 1).as_bytes()).unwrap()
        }),
    ];
    for (case, damage) in cases {
        let memory = MemoryStore::new();
        let store: Arc<dyn Store> = Arc::clone(&memory) as _;
        let mut producer = followed(&store, 10_000).await;
        let mut log = reader(&store).await;
        let at = log.manifest().next_version();
        for _ in 0..10 {
            step(&mut producer).await;
        }
        for last in bundles(&store).await {
            let key = keys::bundle(last);
            let good = store.get(&key, u64::MAX).await.unwrap();
            let bad = damage(std::str::from_utf8(&good).unwrap());
            assert!(bad != good || last < 7, "{case}");
            memory.overwrite(&key, bad.into());
        }
        let unusable = log.catch_up_by_bundle(at + 9).await.unwrap();
        assert_eq!(unusable, crate::read::bundle::Bundled::Refused, "{case}");
        assert_eq!(log.manifest().next_version(), at, "{case}");
        let end = Instant::now() + Duration::from_mins(1);
        follow(&mut log, 8, end).await;
        assert!(log.manifest() == producer.log().manifest(), "{case}");
    }
}

/// A store that refuses bundles.
#[derive(Debug)]
struct Refusing(Arc<dyn Store>, Mutex<u32>);

#[async_trait]
impl layer::Intercept for Refusing {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        if !key.starts_with(keys::BUNDLES) {
            return self.0.create(key, body).await;
        }
        *self.1.lock().unwrap() += 1;
        let (kind, effect) = (ErrorKind::Denied, Effect::DidNot);
        Err(StoreError::new(Op::Create, key, kind, effect, "denied"))
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_writers_try_once_and_followers_read_the_log() {
    let memory: Arc<dyn Store> = MemoryStore::new();
    let refusing = Arc::new(Refusing(Arc::clone(&memory), Mutex::new(0)));
    let store: Arc<dyn Store> = Arc::clone(&refusing) as _;
    let mut producer = followed(&store, 10_000).await;
    let mut log = reader(&memory).await;
    let end = Instant::now() + Duration::from_mins(1);
    let produce = async {
        for _ in 0..30 {
            step(&mut producer).await;
        }
    };
    futures::join!(produce, follow(&mut log, 0, end));
    // Both logs that commit try until they learn of the refusal, at their next commit.
    assert!((1..=4).contains(&*refusing.1.lock().unwrap()));
    assert!(bundles(&memory).await.is_empty());
    assert!(log.manifest() == producer.log().manifest());
}
