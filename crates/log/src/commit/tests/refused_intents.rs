//! Readable intents that cannot be committed: read once, counted once, deleted when they can never become
//! valid, and kept otherwise.

use std::collections::BTreeMap;

use batchweave_core::commit_policy::Action::{Gather, List};
use batchweave_core::intent;
use batchweave_core::manifest::entry::{BatchEntry, Mixture};

use crate::testing::distant::{
    ActionResult, CATCH_UP, PUT_ALL, ScriptedPolicy, intents_in, new_stream, scripted_producer,
};
use crate::testing::prelude::*;

fn batch(producer: &Committer, mixture: u64) -> BatchEntry {
    let next = item(producer, 0, 2);
    BatchEntry {
        producer: producer.name().clone(),
        epoch: producer.epoch(),
        first_seq: 0,
        last_seq: 1,
        cursor_before: producer.cursor().hash(),
        cursor: next.cursor,
        mixture,
        stage: 0,
        first_step: None,
        tgbs: next.tgbs,
    }
}

async fn store_intent(store: &Arc<dyn Store>, batch: BatchEntry) {
    let stream = config(&[]).stream_id;
    let (key, bytes) = intent::encode(stream, &Entry::Batch(batch), 0).unwrap();
    let _ = store.create(&key, bytes.into()).await.unwrap();
}

/// A leader whose reads are counted.
async fn leader(store: &Arc<dyn Store>) -> (Arc<Scripted>, ScriptedPolicy, CommitQueue) {
    let counted = Scripted::new(Arc::clone(store));
    let (leader, leading) = scripted_producer(&(Arc::clone(&counted) as _), "leader", 1).await;
    (counted, leader, leading)
}

#[tokio::test(start_paused = true)]
async fn hopeless_ones_are_read_once_and_deleted() {
    const HOPELESS: u8 = 50;
    let (memory, store) = new_stream().await;
    for n in 0..HOPELESS {
        let victim = opened(&store, &format!("v{n}"), 100 + n).await;
        let mut half = batch(&victim, 0);
        half.tgbs.pop();
        half.last_seq = 0;
        store_intent(&store, half).await;
    }
    let (counted, leader, leading) = leader(&store).await;
    let mut there = intents_in(&memory).len();
    for round in 0..10 {
        let before = *counted.gets.lock().unwrap();
        leader.run(&[List, Gather]).await;
        let reads = *counted.gets.lock().unwrap() - before;
        let expected = if round == 0 { u64::from(HOPELESS) } else { 0 };
        assert_eq!(reads, expected, "round {round}");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = intents_in(&memory).len();
        let gone = if round == 1 { usize::from(HOPELESS) } else { 0 };
        assert_eq!(there - now, gone, "round {round}");
        there = now;
    }
    assert_eq!(there, 0, "all are gone at last");
    let refused = leading.progress().borrow().refused_intents;
    assert_eq!(refused, u64::from(HOPELESS), "each is counted once");
    leading.close(false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_may_become_valid_stays_and_is_read_again_when_things_change() {
    let (memory, store) = new_stream().await;
    let early = opened(&store, "early", 2).await;
    store_intent(&store, batch(&early, 1)).await;
    let (counted, leader, leading) = leader(&store).await;
    let came = leader.run(&[List, Gather]).await;
    assert_eq!(came, [ActionResult::Listed(1), ActionResult::Gathered(0)]);
    let before = *counted.gets.lock().unwrap();
    // Far longer than it takes to consider an intent ownerless.
    for _ in 0..20 {
        let came = leader.run(&[List, Gather]).await;
        assert_eq!(came, [ActionResult::Listed(0), ActionResult::Gathered(0)]);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(*counted.gets.lock().unwrap(), before, "not read again");
    assert_eq!(intents_in(&memory).len(), 1, "nor deleted");
    assert_eq!(leading.progress().borrow().refused_intents, 1);
    let mut admin = Log::open(Arc::clone(&store), &options(9)).await.unwrap();
    let request = admin.new_request();
    let from = BTreeMap::from([("early".parse().unwrap(), 0)]);
    let mixture = |_: &_| {
        Entry::Mixture(Mixture {
            request,
            id: 1,
            from: from.clone(),
            spec: serde_json::Value::Null,
            why: None,
        })
    };
    admin.commit_entry("test", mixture).await.unwrap();
    let came = leader.run(&[CATCH_UP, List, Gather, PUT_ALL]).await;
    assert_eq!(
        came[1..],
        [
            ActionResult::Listed(1),
            ActionResult::Gathered(1),
            ActionResult::Won
        ]
    );
    assert_eq!(steps(&store).await.len(), 3);
    leading.close(false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_one_hides_no_real_one_of_the_same_producer() {
    let (_, store) = new_stream().await;
    let owner = opened(&store, "owner", 2).await;
    let real = batch(&owner, 0);
    let mut forged = real.clone();
    forged.tgbs = item(&owner, 0, 4).tgbs;
    forged.last_seq = 3;
    forged.cursor_before = Hash::sha256(b"elsewhere");
    store_intent(&store, real).await;
    store_intent(&store, forged).await;
    let (leader, leading) = scripted_producer(&store, "leader", 1).await;
    // The longest chain is validated first, and found void.
    leader.run(&[List, Gather]).await;
    let came = leader.run(&[List, Gather, PUT_ALL]).await;
    assert_eq!(
        came,
        [
            ActionResult::Listed(1),
            ActionResult::Gathered(1),
            ActionResult::Won
        ]
    );
    assert_eq!(steps(&store).await.len(), 3);
    leading.close(false).await.unwrap();
}
