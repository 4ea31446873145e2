//! Test helpers: a store with scripted answers, and streams to write to.

pub(crate) mod distant;
mod one_shot;
pub(crate) mod prelude;
pub(crate) mod rounds;

pub(crate) use one_shot::Commit;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_core::commit_policy::Plain;
use batchweave_core::cursor::Cursor;
use batchweave_core::stream::{StreamConfig, StreamOrder};
use batchweave_core::tgb::Digest;
use batchweave_core::{fixtures, keys, limits};
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError, layer};
use bytes::Bytes;

use crate::{CommitItem, Committer, Creation, Located, Log, LogOptions, OpenOutcome, create};

/// The scripted outcome of one create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, but the answer is lost.
    DoneLost,
    /// Not done, and the answer is lost.
    NotDoneLost,
    /// Not done now, but the request is on its way: it lands just before the next create.
    DoneLater,
    /// Done, reported as if the object had been there (an SDK's own retry).
    DoneExists,
    Conflict,
    Throttled,
    Denied,
    /// Done, but never answered.
    DoneHangs,
    /// Not done, and never answered.
    NotDoneHangs,
    /// As `DoneLater`, and never answered.
    LaterHangs,
}

/// Wraps a store; `script` has the outcomes of the next creates under `log/`.
#[derive(Debug)]
pub(crate) struct Scripted {
    inner: Arc<dyn Store>,
    pub(crate) script: Mutex<VecDeque<Answer>>,
    late: Mutex<Vec<(String, Bytes)>>,
    pub(crate) creates: Mutex<Vec<(String, Bytes)>>,
    pub(crate) gets: Mutex<u64>,
}

impl Scripted {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            script: Mutex::default(),
            late: Mutex::default(),
            creates: Mutex::default(),
            gets: Mutex::default(),
        })
    }

    pub(crate) fn answer_with(&self, answers: &[Answer]) {
        self.script.lock().unwrap().extend(answers);
    }

    fn error(&self, key: &str, kind: ErrorKind, effect: Effect) -> StoreError {
        let location = format!("{}/{key}", self.inner.root());
        StoreError {
            op: Op::Create,
            location,
            kind,
            effect,
            detail: "scripted".into(),
        }
    }

    fn note_create(&self, key: &str, body: &Bytes) {
        let create = (key.to_owned(), body.clone());
        self.creates.lock().unwrap().push(create);
    }
}

#[async_trait]
impl layer::Intercept for Scripted {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        if !key.starts_with(keys::LOG) {
            return self.inner.create(key, body).await;
        }
        self.note_create(key, &body);
        let late: Vec<_> = self.late.lock().unwrap().drain(..).collect();
        for (key, body) in late {
            let _ = self.inner.create(&key, body).await?;
        }
        let answer = self.script.lock().unwrap().pop_front();
        let Some(answer) = answer else {
            return self.inner.create(key, body).await;
        };
        if matches!(
            answer,
            Answer::DoneLost | Answer::DoneExists | Answer::DoneHangs
        ) {
            let _ = self.inner.create(key, body.clone()).await?;
        }
        match answer {
            Answer::DoneExists => Ok(Create::Exists),
            Answer::DoneLost | Answer::NotDoneLost => {
                Err(self.error(key, ErrorKind::Timeout, Effect::Unknown))
            }
            Answer::DoneLater => {
                self.late.lock().unwrap().push((key.to_owned(), body));
                Err(self.error(key, ErrorKind::Timeout, Effect::Unknown))
            }
            Answer::Conflict => Err(self.error(key, ErrorKind::Conflict, Effect::Unknown)),
            Answer::Throttled => Err(self.error(key, ErrorKind::Throttled, Effect::DidNot)),
            Answer::Denied => Err(self.error(key, ErrorKind::Denied, Effect::DidNot)),
            Answer::LaterHangs => {
                self.late.lock().unwrap().push((key.to_owned(), body));
                std::future::pending().await
            }
            Answer::DoneHangs | Answer::NotDoneHangs => std::future::pending().await,
        }
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        *self.gets.lock().unwrap() += 1;
        self.inner.get(key, at_most).await
    }
}

pub(crate) fn config(producers: &[&str]) -> StreamConfig {
    let producers = producers.iter().map(|p| p.parse().unwrap()).collect();
    fixtures::stream([3; 16], StreamOrder::Arrival, producers)
}

pub(crate) fn options(seed: u8) -> LogOptions {
    LogOptions::new([seed; 32])
}

pub(crate) async fn opened(store: &Arc<dyn Store>, name: &str, seed: u8) -> Committer {
    let log = Log::open(Arc::clone(store), &options(seed)).await.unwrap();
    match Committer::open(log, name.parse().unwrap(), "test:1")
        .await
        .unwrap()
    {
        OpenOutcome::Opened(producer) => *producer,
        other => panic!("{other:?}"),
    }
}

/// An item of `tgbs` TGBs in one object that starts at `first`.
pub(crate) fn item(producer: &Committer, first: u64, tgbs: u64) -> CommitItem {
    let seqs = (first, first + tgbs - 1);
    let key = keys::data(
        producer.name(),
        producer.epoch(),
        producer.nonce(),
        seqs,
        0,
        0,
    );
    assert!(tgbs as usize <= limits::ENTRY_TGBS_MAX);
    let tgbs = (0..tgbs)
        .map(|i| fixtures::tgb(&key, i, 1024, Digest([(first + i) as u8; 32])))
        .collect();
    CommitItem {
        tgbs,
        cursor: Cursor(serde_json::json!({ "row": seqs.1 + 1 })),
        mixture: None,
        stage: 0,
    }
}

pub(crate) async fn stream(producers: &[&str]) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = MemoryStore::new();
    let created = create(&store, &config(producers)).await.unwrap();
    assert!(matches!(created, Creation::Created(_)));
    store
}

pub(crate) fn policy(seed: u64) -> Plain {
    Plain::new(Duration::ZERO, Duration::from_millis(2), seed)
}

pub(crate) async fn commit(producer: &mut Committer, tgbs: u64) -> Commit {
    let next = item(producer, producer.next_seq(), tgbs);
    producer.try_commit(next.tgbs, next.cursor).await.unwrap()
}

/// Every step from 0 to the head, as (producer, seq).
pub(crate) async fn steps(store: &Arc<dyn Store>) -> Vec<(String, u64)> {
    let mut log = Log::open(Arc::clone(store), &options(99)).await.unwrap();
    let mut all = Vec::new();
    for step in 0..log.manifest().next_step() {
        match log.locate(step).await.unwrap() {
            Located::At(e) => all.push((e.producer.to_string(), e.seq)),
            other => panic!("step {step}: {other:?}"),
        }
    }
    assert_eq!(
        log.manifest().void_entries(),
        0,
        "no correct writer writes a void entry"
    );
    assert_eq!(log.manifest().void_records(), 0);
    all
}
