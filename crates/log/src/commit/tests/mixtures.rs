//! Items that were made by another mixture than the one in force are never committed.

use std::collections::BTreeMap;

use batchweave_core::manifest::entry::{Entry, Mixture};

use crate::testing::prelude::*;
use crate::{CommitEnd, CommitItem};

async fn set(store: &Arc<dyn Store>, id: u64, from: u64) {
    let mut admin = Log::open(Arc::clone(store), &options(9)).await.unwrap();
    let request = admin.new_request();
    let from = BTreeMap::from([("p0".parse().unwrap(), from)]);
    let mixture = |_: &_| {
        Entry::Mixture(Mixture {
            request,
            id,
            from: from.clone(),
            spec: serde_json::json!({ "id": id }),
            why: None,
        })
    };
    admin.commit_entry("test", mixture).await.unwrap();
}

/// An item of two TGBs.
fn made_by(producer: &Committer, first: u64, mixture: Option<u64>) -> CommitItem {
    CommitItem {
        mixture,
        stage: 0,
        ..item(producer, first, 2)
    }
}

/// Submits items and returns how the task ended, and the committed TGBs.
async fn submit(store: &Arc<dyn Store>, mixtures: &[Option<u64>]) -> (CommitEnd, usize) {
    let producer = opened(store, "p0", 1).await;
    let items = (0..).step_by(2).zip(mixtures);
    let items: Vec<_> = items
        .map(|(first, mixture)| made_by(&producer, first, *mixture))
        .collect();
    let queue = producer.spawn(policy(1), CommitOptions::default());
    for item in items {
        queue.submit(item).await;
    }
    let (end, _) = queue.close(false).await.unwrap();
    (end, steps(store).await.len())
}

#[tokio::test(start_paused = true)]
async fn items_of_the_mixture_in_force_are_committed() {
    let store = stream(&[]).await;
    drop(opened(&store, "p0", 7).await);
    set(&store, 1, 4).await;
    let (end, committed) = submit(&store, &[Some(0), None, Some(1), None]).await;
    assert_eq!((end, committed), (CommitEnd::Drained { next_seq: 8 }, 8));
}

#[tokio::test(start_paused = true)]
async fn an_item_of_an_older_mixture_ends_the_task_after_earlier_items() {
    // The mixture begins with an item, or within one.
    for (from, expected) in [(4, 4), (5, 4), (3, 2)] {
        let store = stream(&[]).await;
        drop(opened(&store, "p0", 7).await);
        set(&store, 1, from).await;
        let (end, committed) = submit(&store, &[Some(0), Some(0), Some(0), Some(0)]).await;
        assert_eq!((end, committed), (CommitEnd::Changed, expected), "{from}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_while_an_item_waits_ends_the_task() {
    let store = stream(&[]).await;
    let producer = opened(&store, "p0", 1).await;
    let first = made_by(&producer, 0, Some(0));
    let queue = producer.spawn(policy(1), CommitOptions::default());
    let mut mixtures = queue.changes();
    // The task meets the change when it loses the version to it.
    set(&store, 1, 0).await;
    queue.submit(first).await;
    let (end, _) = queue.close(false).await.unwrap();
    assert_eq!((end, steps(&store).await.len()), (CommitEnd::Changed, 0));
    let seen = mixtures.borrow_and_update().clone();
    assert_eq!(seen.from, BTreeMap::from([(0, 1)]));
    assert_eq!(seen.last.spec, serde_json::json!({ "id": 1 }));
}
