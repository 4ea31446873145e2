//! Snapshots and segments with steps of a fork: their hashes fit, and the log has other TGBs.

use batchweave_core::json::sign_again;
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::Digest;

use super::opening::{history, snapshots};
use crate::testing::prelude::*;

/// Puts another TGB at a step into a copy, which stays a good one otherwise.
async fn forge(memory: &MemoryStore, key: &str, entry: &StepEntry) {
    let text = memory.get(key, u64::MAX).await.unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    let digest = serde_json::to_string(&entry.tgb.digest).unwrap();
    let other = serde_json::to_string(&Digest([7; 32])).unwrap();
    assert!(text.contains(&digest), "{key}");
    let forged = sign_again(text.replace(&digest, &other).as_bytes()).unwrap();
    memory.overwrite(key, forged.into());
}

async fn located(log: &mut Log, step: u64) -> Arc<StepEntry> {
    match log.locate(step).await.unwrap() {
        Located::At(entry) => entry,
        other => panic!("{other:?}"),
    }
}

fn reading() -> LogOptions {
    LogOptions {
        write_snapshots: false,
        ..options(77)
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_steps_of_a_fork_is_left_for_an_older_start() {
    // No later record names the snapshot's hash.
    let (memory, store, mut producer) = history(256).await;
    let newest = *snapshots(&store).await.last().unwrap();
    let step = producer.log().manifest().first_open_step();
    let entry = located(producer.log_mut(), step).await;
    assert!(entry.version <= newest, "the snapshot has it");
    forge(&memory, &keys::snapshot(newest), &entry).await;
    let mut log = Log::open(Arc::clone(&store), &reading()).await.unwrap();
    assert_eq!(log.base, Some(newest));
    let believed = log.manifest().open_step(step).unwrap();
    assert_ne!(believed.tgb.digest, entry.tgb.digest, "its hashes fit");
    assert_eq!(located(&mut log, step).await, entry);
    assert_eq!(log.reopened(), 1);
    assert!(log.manifest() == producer.log().manifest());
}

#[tokio::test(start_paused = true)]
async fn a_segment_with_steps_of_a_fork_is_rebuilt() {
    let (memory, store, mut producer) = history(600).await;
    let entry = located(producer.log_mut(), 5).await;
    forge(&memory, &keys::segment(0), &entry).await;
    let mut log = Log::open(Arc::clone(&store), &reading()).await.unwrap();
    assert_eq!(located(&mut log, 5).await, entry);
    // Another step of it is found by one of many comparisons.
    let entry = located(producer.log_mut(), 1500).await;
    forge(&memory, &keys::segment(1), &entry).await;
    assert_eq!(located(&mut log, 1100).await.step, 1100);
    for _ in 0..200 {
        let _ = located(&mut log, 1500).await;
    }
    assert_eq!(located(&mut log, 1500).await, entry);
}

/// A log whose only snapshot, which no record names yet, is forged.
async fn forged_snapshot() -> (Arc<dyn Store>, Committer, String) {
    let (memory, store, mut producer) = history(256).await;
    let newest = *snapshots(&store).await.last().unwrap();
    let step = producer.log().manifest().first_open_step();
    let entry = located(producer.log_mut(), step).await;
    let key = keys::snapshot(newest);
    forge(&memory, &key, &entry).await;
    (store, producer, key)
}

#[tokio::test(start_paused = true)]
async fn a_process_that_began_with_a_forged_snapshot_deletes_it_and_ends() {
    let (store, producer, key) = forged_snapshot().await;
    let log = Log::open(Arc::clone(&store), &reading()).await.unwrap();
    assert!(log.base.is_some());
    let why = log.confirm().await.unwrap_err();
    assert!(matches!(why, LogError::WrongSnapshot { .. }), "{why}");
    let text = why.to_string();
    assert!(
        text.contains(&key) && text.contains("it was deleted"),
        "{text}"
    );
    assert!(snapshots(&store).await.is_empty());
    let log = Log::open(Arc::clone(&store), &reading()).await.unwrap();
    log.confirm().await.unwrap();
    assert!(log.manifest() == producer.log().manifest());
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_forged_snapshot_is_gone_or_replaced_ends_without_blaming_it() {
    for replaced in [false, true] {
        let (memory, store, mut producer) = history(256).await;
        let newest = keys::snapshot(*snapshots(&store).await.last().unwrap());
        let step = producer.log().manifest().first_open_step();
        let first = located(producer.log_mut(), step).await;
        let second = located(producer.log_mut(), step + 1).await;
        let genuine = store.get(&newest, u64::MAX).await.unwrap();
        forge(&memory, &newest, &first).await;
        let log = Log::open(Arc::clone(&store), &reading()).await.unwrap();
        store.delete(&newest).await.unwrap();
        if replaced {
            memory.overwrite(&newest, genuine);
            forge(&memory, &newest, &second).await;
        }
        let why = log.confirm().await.unwrap_err();
        assert!(matches!(why, LogError::LostSnapshot { .. }), "{why}");
        let text = why.to_string();
        assert!(text.contains(&newest) && text.contains("memory"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forged_snapshot_of_the_second_fold_is_deleted_and_ends_nothing() {
    let (store, producer, _) = forged_snapshot().await;
    assert_eq!(producer.log().base, None);
    producer.log().confirm().await.unwrap();
    assert!(snapshots(&store).await.is_empty());
}
