//! A reader that reads more slowly than others write.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use async_trait::async_trait;
use batchweave_core::manifest::Folded;
use batchweave_store::{StoreError, layer};
use bytes::Bytes;
use tokio::sync::Mutex;

use crate::testing::prelude::*;

/// Records written at most, so that a reader that never ends fails.
const RECORDS_MAX: u64 = 20_000;

/// A store in which a record is committed whenever one is read.
#[derive(Debug)]
struct Growing {
    inner: Arc<dyn Store>,
    writer: Mutex<Committer>,
    grows: AtomicBool,
}

impl Growing {
    async fn head(&self) -> u64 {
        self.writer.lock().await.log().manifest().next_version()
    }
}

#[async_trait]
impl layer::Intercept for Growing {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        if key.starts_with(keys::LOG) && self.grows.load(Relaxed) {
            let mut writer = self.writer.lock().await;
            if writer.log().manifest().next_version() < RECORDS_MAX {
                assert!(matches!(
                    commit(&mut writer, 1).await,
                    Commit::Committed { .. }
                ));
            }
        }
        self.inner.get(key, at_most).await
    }
}

async fn growing() -> Arc<Growing> {
    let inner: Arc<dyn Store> = MemoryStore::new();
    let _ = create(&inner, &config(&[])).await.unwrap();
    let mut writer = opened(&inner, "p0", 1).await;
    for _ in 0..1000 {
        let committed = commit(&mut writer, 1).await;
        assert!(matches!(committed, Commit::Committed { .. }));
    }
    Arc::new(Growing {
        inner,
        writer: Mutex::new(writer),
        grows: AtomicBool::new(true),
    })
}

fn reading() -> LogOptions {
    LogOptions {
        write_snapshots: false,
        ..options(77)
    }
}

#[tokio::test]
async fn opening_and_catching_up_end_though_others_write_as_fast_as_one_reads() {
    let store = growing().await;
    let head = store.head().await;
    let mut log = Log::open(Arc::clone(&store) as _, &reading())
        .await
        .unwrap();
    let opened = log.manifest().next_version();
    assert!((head..head + 3000).contains(&opened), "opened at {opened}");

    let (head, next_step) = (store.head().await, log.manifest().next_step());
    let mut steps = Vec::new();
    let note = |folded: &Folded| steps.extend(folded.placed.iter().map(|p| p.step));
    log.catch_up_noting(note).await.unwrap();
    let read = log.manifest().next_version();
    assert!((head..head + 3000).contains(&read), "read up to {read}");
    assert!(steps.into_iter().eq(next_step..log.manifest().next_step()));

    store.grows.store(false, Relaxed);
    while log.manifest().next_version() < store.head().await {
        log.catch_up().await.unwrap();
    }
    let writer = store.writer.lock().await;
    assert!(log.manifest() == writer.log().manifest());
}
