//! Forks over a store: at each step, killed between any two requests, of damaged parents, and their requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use batchweave_core::ids::StreamId;
use batchweave_core::inputs::Chain;
use batchweave_core::manifest::state::ProducerState;
use batchweave_store::counting::Counted;
use batchweave_store::layer::{self, Call};
use batchweave_store::{Effect, ErrorKind, Op, StoreError};

use super::*;
use crate::testing::prelude::*;

/// A store whose process is killed after some writes.
#[derive(Debug)]
struct Killed {
    inner: Arc<dyn Store>,
    left: AtomicU64,
}

#[async_trait]
impl layer::Intercept for Killed {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let writes = matches!(call.op, Op::Create | Op::Upload | Op::Delete);
        if writes
            && self
                .left
                .fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1))
                .is_err()
        {
            let (kind, effect) = (ErrorKind::Denied, Effect::DidNot);
            return Err(StoreError::new(
                call.op,
                call.key.to_owned(),
                kind,
                effect,
                "killed",
            ));
        }
        run.await
    }
}

fn pin(n: u64) -> PinnedFile {
    PinnedFile::new(format!("file-{n}"), n, b"head", b"")
}

/// A parent of two producers with input lists, one entry of three TGBs after another.
async fn parent(entries: u64) -> Arc<dyn Store> {
    let store = stream(&[]).await;
    for (n, name) in ["p0", "p1"].into_iter().enumerate() {
        let mut producer = opened(&store, name, n as u8 + 1).await;
        let mut chain = Chain::default();
        let mut files = Vec::new();
        for entry in 0..entries {
            files.push(pin(entry));
            let opening = (producer.epoch(), producer.nonce());
            let (head, links) = chain.grow(opening, &files);
            for (id, bytes) in links {
                let key = keys::inputs(producer.name(), &id);
                let _ = store.create(&key, bytes.into()).await.unwrap();
            }
            let mut next = item(&producer, producer.next_seq(), 3);
            let row = producer.next_seq() + 3;
            next.cursor =
                batchweave_core::cursor::Cursor(serde_json::json!({ "row": row, "inputs": head }));
            let committed = producer.try_commit(next.tgbs, next.cursor).await.unwrap();
            assert!(matches!(committed, Commit::Committed { .. }));
        }
    }
    store
}

async fn plan(store: &Arc<dyn Store>, step: Step) -> Result<ForkPlan, ForkError> {
    plan_fork(store, &options(50), step, false).await
}

async fn make(store: &Arc<dyn Store>, plan: &ForkPlan, id: u8) -> Result<Made, ForkError> {
    let id = StreamId::from_random([id; 16]);
    make_fork(store, plan, id, "2026-11-29T00:00:00Z".to_owned()).await
}

async fn objects(store: &Arc<dyn Store>) -> BTreeMap<String, Bytes> {
    let mut all = BTreeMap::new();
    for object in store.list("", None).await.unwrap().objects {
        let bytes = store.get(&object.key, u64::MAX).await.unwrap();
        all.insert(object.key, bytes);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_fork_at_each_step_begins_there_and_takes_commits() {
    let store = parent(4).await;
    for step in 0..=24 {
        let plan = plan(&store, step).await.unwrap();
        let child: Arc<dyn Store> = MemoryStore::new();
        assert!(matches!(
            make(&child, &plan, 9).await.unwrap(),
            Made::Created(_)
        ));
        let mut log = Log::open(Arc::clone(&child), &options(60)).await.unwrap();
        let m = log.manifest();
        assert_eq!(
            (m.next_step(), m.watermark(), m.next_version()),
            (step, step, 0)
        );
        assert_eq!(m.stream().parent.as_ref().unwrap().step, step);
        if step > 0 {
            let below = log.locate(step - 1).await.unwrap();
            assert_eq!(below, Located::Reclaimed { watermark: step });
        }
        // The first twelve steps are those of p0.
        let own = step.min(12);
        let state = |log: &Log| log.manifest().producer(&"p0".parse().unwrap()).cloned();
        let expected = |p: &ProducerState| (p.next_seq, p.made_from(), p.retired, p.epoch);
        if step > 0 {
            let p = state(&log).unwrap();
            assert_eq!(expected(&p), (own, own - own % 3, true, 1), "step {step}");
            // An entry of another producer brings the last list.
            let files = plan.files[&"p0".parse().unwrap()].len() as u64;
            assert_eq!(files, own.div_ceil(3));
            assert_eq!(p.input_list().unwrap().unwrap().files, files);
        }
        let mut producer = opened(&child, "p0", 70).await;
        let committed = commit(&mut producer, 2).await;
        assert!(
            matches!(committed, Commit::Committed { .. }),
            "{committed:?}"
        );
        let m = producer.log().manifest();
        assert_eq!((m.next_step(), m.void_entries()), (step + 2, 0));
        let p = m.producer(&"p0".parse().unwrap()).unwrap();
        assert_eq!(
            (p.again.as_ref(), p.epoch),
            (None, if step > 0 { 2 } else { 1 })
        );
        // Segments and snapshots of the fork are its own.
        let again = Log::open(Arc::clone(&child), &options(61)).await.unwrap();
        assert!(again.manifest() == m);
        again.confirm().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_is_killed_between_two_writes_is_finished_by_the_same_command() {
    let store = parent(3).await;
    let plan = plan(&store, 13).await.unwrap();
    let whole: Arc<dyn Store> = MemoryStore::new();
    make(&whole, &plan, 9).await.unwrap();
    let whole = objects(&whole).await;
    assert!(whole.len() >= 4, "{:?}", whole.keys());
    for writes in 0..=whole.len() as u64 {
        let inner: Arc<dyn Store> = MemoryStore::new();
        let killed: Arc<dyn Store> = Arc::new(Killed {
            inner: Arc::clone(&inner),
            left: AtomicU64::new(writes),
        });
        let first = make(&killed, &plan, 8).await;
        assert_eq!(first.is_ok(), writes == whole.len() as u64, "{first:?}");
        // Only the last write makes the root a stream.
        let there = Log::open(Arc::clone(&inner), &options(1)).await;
        assert_eq!(there.is_ok(), first.is_ok());
        // A new command reads the parent again.
        let again = super::tests::plan(&store, 13).await.unwrap();
        let made = make(&inner, &again, 9).await.unwrap();
        assert_eq!(matches!(made, Made::Existed(_)), first.is_ok());
        let mut now = objects(&inner).await;
        if first.is_ok() {
            now.insert(keys::STREAM.to_owned(), whole[keys::STREAM].clone());
        }
        assert!(now == whole, "{:?}", now.keys());
    }
}

#[tokio::test(start_paused = true)]
async fn a_root_with_anything_else_is_refused() {
    let store = parent(3).await;
    let (plan, other) = (
        plan(&store, 7).await.unwrap(),
        plan(&store, 4).await.unwrap(),
    );
    let child: Arc<dyn Store> = MemoryStore::new();
    let _ = child.create("notes.txt", "x".into()).await.unwrap();
    let why = make(&child, &plan, 9).await.unwrap_err().to_string();
    assert!(
        why.contains("another object (notes.txt): choose an empty root"),
        "{why}"
    );
    let why = make(&store, &plan, 9).await.unwrap_err().to_string();
    assert!(why.contains("holds stream"), "{why}");
    let child: Arc<dyn Store> = MemoryStore::new();
    make(&child, &other, 9).await.unwrap();
    let why = make(&child, &plan, 9).await.unwrap_err().to_string();
    assert!(why.contains("holds stream"), "{why}");
    // The beginning of another fork.
    let child: Arc<dyn Store> = MemoryStore::new();
    let state = other.state.to_json();
    let _ = child.create(keys::FORK, state.into()).await.unwrap();
    let why = make(&child, &plan, 9).await.unwrap_err().to_string();
    assert!(why.contains("the beginning of another fork"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn steps_that_are_not_there_are_refused_by_name() {
    let store = parent(2).await;
    let why = plan(&store, 13).await.unwrap_err().to_string();
    assert!(
        why.contains("step 13 of memory:") && why.contains("fork at 12 or below"),
        "{why}"
    );
    let child: Arc<dyn Store> = MemoryStore::new();
    make(&child, &plan(&store, 5).await.unwrap(), 9)
        .await
        .unwrap();
    let why = plan(&child, 4).await.unwrap_err().to_string();
    assert!(
        why.contains("begins at step 5; steps below it are in its parent, memory:"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_at_or_below_the_border_is_refused() {
    let store = parent(4).await;
    let memory = MemoryStore::new();
    let border = plan(&store, 7).await.unwrap().parent.version.unwrap();
    for (key, bytes) in objects(&store).await {
        memory.overwrite(&key, bytes);
    }
    for version in 0..=border {
        let key = keys::log(version);
        let store: Arc<dyn Store> = Arc::clone(&memory) as _;
        let whole = store.get(&key, u64::MAX).await.unwrap();
        let mut damaged = whole.to_vec();
        damaged[20] ^= 1;
        memory.overwrite(&key, damaged.into());
        assert!(plan(&store, 7).await.is_err(), "version {version}");
        memory.overwrite(&key, whole);
        assert!(plan(&store, 7).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn reclaimed_links_of_an_old_list_are_taken_from_the_newest_one() {
    let store = parent(4).await;
    let whole = plan(&store, 4).await.unwrap();
    let newest = {
        let log = Log::open(Arc::clone(&store), &options(1)).await.unwrap();
        let p = log.manifest().producer(&"p0".parse().unwrap()).cloned();
        let list = p.unwrap().input_list().unwrap();
        let (chain, _) = read_inputs(store.as_ref(), &"p0".parse().unwrap(), list)
            .await
            .unwrap();
        chain
            .ids()
            .map(|id| keys::inputs(&"p0".parse().unwrap(), &id))
            .collect::<Vec<_>>()
    };
    for object in store.list(keys::INPUTS, None).await.unwrap().objects {
        if object.key.contains("/p0/") && !newest.contains(&object.key) {
            store.delete(&object.key).await.unwrap();
        }
    }
    let now = plan(&store, 4).await.unwrap();
    assert!(now.state == whole.state && now.files == whole.files && now.links == whole.links);
}

#[tokio::test(start_paused = true)]
async fn a_fork_near_the_head_takes_as_many_requests_at_any_length_of_the_log() {
    let mut counted = Vec::new();
    // As many versions behind the newest snapshot.
    for versions in [1290, 5130] {
        let store = stream(&[]).await;
        let mut producer = opened(&store, "p0", 1).await;
        while producer.log().manifest().next_version() < versions + 10 {
            let committed = commit(&mut producer, 2).await;
            assert!(matches!(committed, Commit::Committed { .. }));
        }
        producer.log_mut().settle_snapshots().await;
        let step = producer.log().manifest().next_step() - 5;
        let counting = Arc::new(Counted::new(Arc::clone(&store)));
        let plan = plan(&(Arc::clone(&counting) as Arc<dyn Store>), step)
            .await
            .unwrap();
        assert_eq!(plan.state.producers.len(), 1);
        counted.push(counting.counts().requests());
    }
    let (few, many) = (counted[0], counted[1]);
    assert!(many == few && few < 2500, "{counted:?}");
}
