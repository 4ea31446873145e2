//! A stream with real objects, a job with marks and progress, and a store that interferes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use async_trait::async_trait;
use batchweave_core::ids::{AttemptId, JobName, RequestId, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, JobOpened};
use batchweave_core::retention::{Mark, Progress};
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError, layer};
use bytes::Bytes;
use tokio::sync::Mutex;

use crate::testing::{Commit, config, item, opened, options};
use crate::{Committer, Log, create};

/// TGBs of one object, and so of one commit, in these tests.
pub(super) const SHARED: u64 = 4;

pub(super) fn job() -> JobName {
    "llm".parse().unwrap()
}

/// A stream in memory.
pub(super) struct Scene {
    pub(super) memory: Arc<MemoryStore>,
    pub(super) store: Arc<dyn Store>,
    pub(super) opened: Version,
    attempts: u8,
}

impl Scene {
    pub(super) async fn new() -> Self {
        let memory = MemoryStore::new();
        let store: Arc<dyn Store> = Arc::clone(&memory) as Arc<dyn Store>;
        let _ = create(&store, &config(&[])).await.unwrap();
        Self {
            memory,
            store,
            opened: 0,
            attempts: 0,
        }
    }

    /// Returns a stream whose producer has committed this number of objects.
    pub(super) async fn with(objects: u64) -> (Self, Committer) {
        let scene = Self::new().await;
        let mut producer = opened(&scene.store, "p0", 7).await;
        for _ in 0..objects {
            scene.commit(&mut producer).await;
        }
        (scene, producer)
    }

    pub(super) async fn log(&self, seed: u8) -> Log {
        Log::open(Arc::clone(&self.store), &options(seed))
            .await
            .unwrap()
    }

    /// Uploads an object of `SHARED` TGBs and commits it.
    pub(super) async fn commit(&self, producer: &mut Committer) {
        let next = item(producer, producer.next_seq(), SHARED);
        let body = Bytes::from(vec![7; 1024 * SHARED as usize]);
        let key = &next.tgbs[0].parts[0].key;
        let _ = self.store.upload(key, body).await.unwrap();
        loop {
            let (tgbs, cursor) = (next.tgbs.clone(), next.cursor.clone());
            match producer.try_commit(tgbs, cursor).await.unwrap() {
                Commit::Committed { .. } => return,
                // Another writer's record was first.
                Commit::Lost => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn job_opened(keep: u32, lease_seconds: Option<u64>) -> Entry {
        Entry::JobOpened(JobOpened {
            request: RequestId([keep as u8; 16]),
            job: job(),
            start: 0,
            keep,
            holds: true,
            paces: false,
            lease_seconds,
        })
    }

    pub(super) async fn open_job(&mut self, keep: u32, lease_seconds: Option<u64>) {
        let entry = Self::job_opened(keep, lease_seconds);
        let version = self
            .log(50)
            .await
            .commit_entry("t", |_| entry.clone())
            .await;
        self.opened = version.unwrap().unwrap();
        self.attempts = 0;
    }

    pub(super) fn attempt(&mut self, start: Step) -> Entry {
        self.attempts += 1;
        let n = self.attempts;
        Entry::AttemptOpened(AttemptOpened {
            job: job(),
            opened: self.opened,
            attempt: AttemptId([n; 16]),
            predecessor: (n > 1).then_some(AttemptId([n - 1; 16])),
            parent: None,
            inherited: None,
            start,
            dp_size: 2,
            mesh: Vec::new(),
        })
    }

    pub(super) async fn open_attempt(&mut self, start: Step) {
        let entry = self.attempt(start);
        let mut log = self.log(51).await;
        log.commit_entry("t", |_| entry.clone()).await.unwrap();
    }

    async fn put(&self, key: &str, body: Vec<u8>) {
        let _ = self.store.create(key, body.into()).await.unwrap();
    }

    /// Stores that both coordinates have received all steps below `step`.
    pub(super) async fn progress(&self, attempt: u64, step: Step) {
        let progress = Progress {
            format: 1,
            stream: config(&[]).stream_id,
            job: job(),
            opened: self.opened,
            attempt,
            id: AttemptId([attempt as u8 + 1; 16]),
            node: "n".into(),
            first: 0,
            last: 1,
            step,
            at: "2026-01-01T00:00:00Z".into(),
        };
        self.put(&progress.key(), progress.to_json()).await;
    }

    /// Ranks of the attempt are connected.
    pub(super) async fn alive(&self, attempt: u64, beat: u64) {
        let key = keys::alive(&job(), self.opened, attempt, beat, "n");
        self.put(&key, b"{}".into()).await;
    }

    /// A complete mark, and progress that goes with it.
    pub(super) async fn mark(&self, attempt: u64, step: Step) {
        self.progress(attempt, step).await;
        for at in 0..2 {
            let mark = self.a_mark(attempt, step, at);
            self.put(&mark.key(), mark.to_json()).await;
        }
    }

    /// The mark of one coordinate.
    pub(super) fn a_mark(&self, attempt: u64, step: Step, at: u32) -> Mark {
        Mark {
            format: 1,
            stream: config(&[]).stream_id,
            job: job(),
            opened: self.opened,
            attempt,
            id: AttemptId([attempt as u8 + 1; 16]),
            dp_rank: Some(at),
            dp_size: 2,
            step,
            state: "{}".into(),
        }
    }

    /// The first sequence numbers of the stored objects.
    pub(super) fn objects(&self) -> Vec<u64> {
        let keys = self.memory.keys();
        let data = keys.iter().filter(|key| key.starts_with(keys::DATA));
        data.filter_map(|key| keys::data_seqs(key.rsplit('/').next()?))
            .map(|(first, _)| first)
            .collect()
    }

    pub(super) fn count(&self, prefix: &str) -> usize {
        let keys = self.memory.keys();
        keys.iter().filter(|key| key.starts_with(prefix)).count()
    }
}

/// A store that interferes once, just before the next record is put.
#[derive(Debug)]
pub(super) struct Meddler {
    inner: Arc<dyn Store>,
    /// Another writer, and the entry that it commits first.
    pub(super) first: Mutex<Option<(Log, Entry)>>,
    /// Answers 403 to each request after this number of deletions.
    pub(super) deletes_left: AtomicI64,
}

impl Meddler {
    pub(super) fn new(scene: &Scene) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(&scene.store),
            first: Mutex::default(),
            deletes_left: AtomicI64::new(i64::MAX),
        })
    }
}

#[async_trait]
impl layer::Intercept for Meddler {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let first = self.first.lock().await.take();
        if let Some((mut log, entry)) = first {
            log.commit_entry("t", |_| entry.clone()).await.unwrap();
        }
        self.inner.create(key, body).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        if self.deletes_left.fetch_sub(1, Relaxed) <= 0 {
            let location = format!("{}/{key}", self.inner.root());
            let (kind, effect) = (ErrorKind::Denied, Effect::DidNot);
            return Err(StoreError::new(
                Op::Delete,
                location,
                kind,
                effect,
                "scripted",
            ));
        }
        self.inner.delete(key).await
    }
}
