//! Reads that return wrong bytes of an intact object, and folds that went wrong in memory.

use std::sync::Mutex;

use async_trait::async_trait;
use batchweave_core::ids::{AttemptId, JobName, RequestId};
use batchweave_core::manifest::entry::{AttemptOpened, JobOpened};
use batchweave_core::manifest::{FoldError, Folded, Manifest};
use batchweave_store::{StoreError, layer};
use bytes::Bytes;

use crate::admin::repair::{Remedy, Repaired, damage, repair};
use crate::reclaim::{Limits, Reclaimer};
use crate::testing::prelude::*;

/// A store whose next read of one key returns other text than the object has.
#[derive(Debug)]
struct Lying {
    inner: Arc<dyn Store>,
    lie: Mutex<Option<(String, &'static str, &'static str)>>,
    told: Mutex<u32>,
}

impl Lying {
    fn around(inner: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            lie: Mutex::default(),
            told: Mutex::default(),
        })
    }

    fn lie_once(&self, key: String, from: &'static str, to: &'static str) {
        *self.lie.lock().unwrap() = Some((key, from, to));
    }

    fn told(&self) -> u32 {
        *self.told.lock().unwrap()
    }
}

#[async_trait]
impl layer::Intercept for Lying {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let bytes = self.inner.get(key, at_most).await?;
        let Some((_, from, to)) = self.lie.lock().unwrap().take_if(|(k, ..)| k == key) else {
            return Ok(bytes);
        };
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(text.contains(from), "{from} in {text}");
        *self.told.lock().unwrap() += 1;
        Ok(text.replacen(from, to, 1).into())
    }
}

/// Gives the record of one version no meaning, once: as if memory had been damaged while it was
/// folded. `always`: as another version of the program might.
#[derive(Debug)]
struct Mistaken {
    version: u64,
    left: Mutex<u32>,
}

impl Mistaken {
    fn at(version: u64, times: u32) -> Arc<dyn SharedFold> {
        let left = Mutex::new(times);
        Arc::new(Self { version, left })
    }
}

impl SharedFold for Mistaken {
    fn fold(&self, manifest: &mut Manifest, bytes: &Bytes) -> Result<Folded, FoldError> {
        let mut left = self.left.lock().unwrap();
        if manifest.next_version() == self.version && *left > 0 {
            *left -= 1;
            return Ok(manifest.fold_repaired(bytes));
        }
        manifest.fold(bytes)
    }

    fn second(self: Arc<Self>) -> Option<Arc<dyn SharedFold>> {
        Some(self)
    }
}

fn mistaken(seed: u8, version: u64, times: u32) -> LogOptions {
    LogOptions {
        shared_fold: Some(Mistaken::at(version, times)),
        ..options(seed)
    }
}

fn next_seq(m: &Manifest, name: &str) -> u64 {
    m.producer(&name.parse().unwrap()).unwrap().next_seq
}

/// '4' and '5' differ in one bit; `rows` is only for people, so only a digest shows the difference.
#[tokio::test]
async fn a_writer_that_reads_one_wrong_bit_commits_into_the_log_all_the_same() {
    let store = stream(&[]).await;
    let mut other = opened(&store, "p1", 2).await;
    let lying = Lying::around(&store);
    let mine: Arc<dyn Store> = Arc::clone(&lying) as _;
    let mut producer = opened(&mine, "p0", 1).await;
    assert!(matches!(commit(&mut other, 1).await, Commit::Lost));
    let won = commit(&mut other, 1).await;
    assert!(
        matches!(won, Commit::Committed { version: 2, .. }),
        "{won:?}"
    );
    lying.lie_once(keys::log(2), "\"rows\":4", "\"rows\":5");
    for _ in 0..6 {
        let _ = commit(&mut producer, 1).await;
    }
    assert_eq!(lying.told(), 1);
    let reader = Log::open(Arc::clone(&store), &options(9)).await.unwrap();
    assert_eq!(next_seq(reader.manifest(), "p0"), producer.next_seq());
    assert!(producer.next_seq() >= 5);
    assert_eq!(reader.manifest().void_records(), 0);
}

#[tokio::test]
async fn a_follower_that_reads_one_wrong_bit_reads_again_and_goes_on() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    let lying = Lying::around(&store);
    let mine: Arc<dyn Store> = Arc::clone(&lying) as _;
    let mut follower = Log::open(mine, &options(3)).await.unwrap();
    for (from, to) in [("\"rows\":4", "\"rows\":5"), ("}\n", "}"), ("{", "")] {
        let version = producer.log().manifest().next_version();
        lying.lie_once(keys::log(version), from, to);
        let _ = commit(&mut producer, 1).await;
        follower.catch_up().await.unwrap();
    }
    assert_eq!(lying.told(), 3);
    assert_eq!(follower.manifest(), producer.log().manifest());
}

#[tokio::test]
async fn a_reclaimer_that_reads_one_wrong_bit_deletes_nothing_that_is_needed() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 0..4 {
        let next = item(&producer, producer.next_seq(), 4);
        let key = next.tgbs[0].parts[0].key.clone();
        let _ = store
            .upload(&key, Bytes::from(vec![7; 4096]))
            .await
            .unwrap();
        let _ = producer.try_commit(next.tgbs, next.cursor).await.unwrap();
    }
    let at = open_attempt(&store).await;
    let lying = Lying::around(&store);
    lying.lie_once(keys::log(at), "\"start\":0", "\"start\":8");
    let mine: Arc<dyn Store> = Arc::clone(&lying) as _;
    let mut theirs = Log::open(mine, &options(4)).await.unwrap();
    let report = Reclaimer::new()
        .pass(&mut theirs, Limits::default())
        .await
        .unwrap();
    assert_eq!((lying.told(), report.published), (1, None));
    let deleted: u64 = report.deleted.values().map(|tally| tally.objects).sum();
    assert_eq!(deleted, 0);
}

/// Opens a job that retains all steps; returns the version of its attempt.
async fn open_attempt(store: &Arc<dyn Store>) -> u64 {
    let name: JobName = "llm".parse().unwrap();
    let mut log = Log::open(Arc::clone(store), &options(3)).await.unwrap();
    let job = Entry::JobOpened(JobOpened {
        request: RequestId([1; 16]),
        job: name.clone(),
        start: 0,
        keep: 1,
        holds: true,
        paces: false,
        lease_seconds: None,
    });
    let opened = log
        .commit_entry("t", |_| job.clone())
        .await
        .unwrap()
        .unwrap();
    let attempt = Entry::AttemptOpened(AttemptOpened {
        job: name,
        opened,
        attempt: AttemptId([1; 16]),
        predecessor: None,
        parent: None,
        inherited: None,
        start: 0,
        dp_size: 2,
        mesh: Vec::new(),
    });
    log.commit_entry("t", |_| attempt.clone())
        .await
        .unwrap()
        .unwrap()
}

/// An editor that drops the last newline, a restore that formats it anew.
#[tokio::test]
async fn a_record_that_lost_its_last_byte_stops_all_readers_with_its_key() {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 0..3 {
        let _ = commit(&mut producer, 1).await;
    }
    for key in [keys::log(1), keys::STREAM.to_owned()] {
        let whole = store.get(&key, keys::bytes_max(&key)).await.unwrap();
        let shorter = whole.slice(..whole.len() - 1);
        memory.delete(&key).await.unwrap();
        let _ = memory.create(&key, shorter).await.unwrap();
        let stopped = Log::open(Arc::clone(&store), &options(4))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            stopped.contains(&key) && stopped.contains("damaged"),
            "{stopped}"
        );
        memory.delete(&key).await.unwrap();
        let _ = memory.create(&key, whole).await.unwrap();
    }
    assert!(Log::open(Arc::clone(&store), &options(4)).await.is_ok());
}

#[tokio::test]
async fn a_reader_that_folded_wrongly_folds_again_and_goes_on() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    let _ = commit(&mut producer, 1).await;
    let mut reader = Log::open(Arc::clone(&store), &mistaken(5, 1, 1))
        .await
        .unwrap();
    assert_ne!(reader.manifest(), producer.log().manifest());
    let _ = commit(&mut producer, 1).await;
    reader.catch_up().await.unwrap();
    assert_eq!(reader.manifest(), producer.log().manifest());
    assert_eq!(reader.reopened(), 1);
}

/// Another version of the program that validates one record differently: its own records are not void, and it does
/// not make those of others void.
#[tokio::test]
async fn two_programs_that_judge_differently_stop_and_never_void_each_other() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    let _ = commit(&mut producer, 1).await; // version 1: the other program sees nothing in it
    let mut other = Log::open(Arc::clone(&store), &mistaken(6, 1, u32::MAX))
        .await
        .unwrap();
    let sealed = |n| {
        Entry::Sealed(Sealed {
            request: RequestId([n; 16]),
            reason: "x".into(),
        })
    };
    let won = other.commit_entry("other", |_| sealed(1)).await.unwrap();
    assert_eq!(won, Some(2));
    let next = item(&producer, producer.next_seq(), 1);
    let stopped = producer
        .try_commit(next.tgbs, next.cursor)
        .await
        .unwrap_err()
        .to_string();
    for part in [
        "version 2",
        "by other",
        "understood the records before it otherwise",
    ] {
        assert!(stopped.contains(part), "{part}: {stopped}");
    }
    let opened = Log::open(Arc::clone(&store), &options(7))
        .await
        .unwrap_err();
    assert!(
        matches!(
            opened,
            LogError::Fold(FoldError::OtherView { version: 2, .. })
        ),
        "{opened}"
    );
    // A person decides.
    let hurt = damage(&store, &options(7)).await.unwrap().unwrap();
    assert_eq!(hurt.remedy, Remedy::Repair);
    let done = repair(&store, &hurt, "an old program", &options(7))
        .await
        .unwrap();
    assert_eq!(done, Repaired::Now);
    let reader = Log::open(Arc::clone(&store), &options(8)).await.unwrap();
    assert!(!reader.manifest().sealed());
    assert_eq!(reader.manifest().repaired(), [2]);
    producer.log_mut().catch_up().await.unwrap();
    assert!(matches!(
        commit(&mut producer, 1).await,
        Commit::Committed { version: 3, .. }
    ));
    // The other program does not take records that continue without it.
    let stopped = other.catch_up().await.unwrap_err();
    assert!(
        matches!(
            stopped,
            LogError::Fold(FoldError::OtherView { version: 3, .. })
        ),
        "{stopped}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_repair_below_the_head_is_found_and_the_log_folded_again() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    let _ = commit(&mut producer, 1).await;
    // It folds version 1 wrongly once, wins version 2, and takes its own record for valid.
    let mut other = Log::open(Arc::clone(&store), &mistaken(6, 1, 1))
        .await
        .unwrap();
    let request = RequestId([3; 16]);
    let reason = "x".to_owned();
    let sealed = Entry::Sealed(Sealed { request, reason });
    assert_eq!(
        other
            .commit_entry("other", |_| sealed.clone())
            .await
            .unwrap(),
        Some(2)
    );
    assert!(other.manifest().sealed());
    let hurt = damage(&store, &options(7)).await.unwrap().unwrap();
    let _ = repair(&store, &hurt, "damaged memory", &options(7))
        .await
        .unwrap();
    other.catch_up().await.unwrap();
    assert!(other.manifest().sealed(), "it has not looked yet");
    tokio::time::sleep(Duration::from_secs(76)).await;
    other.catch_up().await.unwrap();
    assert!(!other.manifest().sealed());
    producer.log_mut().catch_up().await.unwrap();
    assert_eq!(other.manifest(), producer.log().manifest());
}

#[tokio::test]
async fn what_a_second_fold_does_not_confirm_is_neither_published_nor_deleted() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    while producer.log().manifest().next_version() < 200 {
        let _ = commit(&mut producer, 1).await;
    }
    let mut wrong = Log::open(Arc::clone(&store), &mistaken(6, 199, 1))
        .await
        .unwrap();
    let unconfirmed = wrong.confirm().await.unwrap_err();
    assert!(
        matches!(unconfirmed, LogError::Unconfirmed { version: 199 }),
        "{unconfirmed}"
    );
    let mut pass = Reclaimer::new();
    let orphan = "data/p9/1-0000000000000000/000000000000-000000000000.0000000000000000.0.tgb";
    let _ = store
        .upload(orphan, Bytes::from_static(b"x"))
        .await
        .unwrap();
    let _ = pass.pass(&mut wrong, Limits::default()).await;
    assert!(store.head(orphan).await.is_ok());
}
