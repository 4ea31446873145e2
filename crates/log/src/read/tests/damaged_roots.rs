//! Damage to a root is named: altered records, foreign records, a new stream, numbers used up.

use batchweave_core::ids::StreamId;
use batchweave_core::limits::{NUMBER_MAX, VERSION_LAST};
use batchweave_core::manifest::void::Void;

use crate::testing::prelude::*;

async fn history(versions: u64) -> (Arc<MemoryStore>, Arc<dyn Store>, Committer) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 1..versions {
        assert!(matches!(
            commit(&mut producer, 1).await,
            Commit::Committed { .. }
        ));
    }
    (memory, store, producer)
}

/// Returns the record at `version` as if edited by hand: readable, with other content.
async fn alter(memory: &MemoryStore, version: u64) {
    let key = keys::log(version);
    let text = String::from_utf8(memory.get(&key, u64::MAX).await.unwrap().to_vec()).unwrap();
    let other = text.replace("\"rows\":4", "\"rows\":8");
    let signed = batchweave_core::json::sign_again(other.as_bytes()).unwrap();
    memory.overwrite(&key, signed.into());
}

#[tokio::test]
async fn a_record_that_was_altered_after_it_was_read_is_named() {
    let (memory, store, mut producer) = history(5).await;
    let mut reader = Log::open(Arc::clone(&store), &options(2)).await.unwrap();
    alter(&memory, 4).await;
    // A writer that has read the altered record continues it.
    let mut late = opened(&store, "p1", 3).await;
    assert!(matches!(
        commit(&mut late, 1).await,
        Commit::Committed { version: 6, .. }
    ));
    let before = reader.manifest().clone();
    for _ in 0..2 {
        let error = reader.catch_up().await.unwrap_err();
        assert!(matches!(error, LogError::Altered { .. }), "{error}");
        assert!(error.to_string().contains(&keys::log(4)), "{error}");
        assert!(*reader.manifest() == before, "and nobody goes past it");
    }
    let next = item(&producer, producer.next_seq(), 1);
    let error = producer
        .try_commit(next.tgbs, next.cursor)
        .await
        .unwrap_err();
    assert!(
        matches!(error, LogError::Altered { .. }),
        "writers neither: {error}"
    );
}

#[tokio::test]
async fn a_record_that_was_altered_under_a_snapshot_is_named_when_the_log_is_opened() {
    let (memory, store, mut producer) = history(300).await;
    producer.log_mut().settle_snapshots().await;
    alter(&memory, 255).await;
    let error = Log::open(store, &options(2)).await.unwrap_err();
    assert!(
        matches!(&error, LogError::Altered { key, .. } if *key == keys::log(255)),
        "{error}"
    );
}

#[tokio::test]
async fn a_record_of_another_stream_is_void_and_the_log_goes_on() {
    let (_, store, mut producer) = history(3).await;
    let elsewhere: Arc<dyn Store> = MemoryStore::new();
    let mut other = config(&[]);
    other.stream_id = StreamId::from_random([9; 16]);
    let _ = create(&elsewhere, &other).await.unwrap();
    let mut stranger = opened(&elsewhere, "p0", 5).await;
    for _ in 0..3 {
        assert!(matches!(
            commit(&mut stranger, 1).await,
            Commit::Committed { .. }
        ));
    }
    let foreign = elsewhere.get(&keys::log(3), u64::MAX).await.unwrap();
    let _ = store.create(&keys::log(3), foreign).await.unwrap();
    let mut reader = Log::open(Arc::clone(&store), &options(6)).await.unwrap();
    assert_eq!(reader.manifest().void_records(), 1);
    assert_eq!(commit(&mut producer, 1).await, Commit::Lost);
    assert!(matches!(
        commit(&mut producer, 1).await,
        Commit::Committed { version: 4, .. }
    ));
    reader.catch_up().await.unwrap();
    assert_eq!(reader.manifest().void_records(), 1);
    let reread = Log::open(store, &options(7)).await.unwrap();
    assert!(reread.manifest() == reader.manifest());
}

/// Deletes all objects and creates another stream at the same root.
async fn make_anew(memory: &MemoryStore, store: &Arc<dyn Store>, records: u64) -> Committer {
    for key in memory.keys() {
        memory.delete(&key).await.unwrap();
    }
    let mut other = config(&[]);
    other.stream_id = StreamId::from_random([9; 16]);
    let _ = create(store, &other).await.unwrap();
    let mut producer = opened(store, "p9", 9).await;
    for _ in 1..records {
        assert!(matches!(
            commit(&mut producer, 1).await,
            Commit::Committed { .. }
        ));
    }
    producer
}

#[tokio::test]
async fn a_root_made_anew_under_living_writers_is_named() {
    // The new log is longer: our next version is taken by a record of the other stream.
    let (memory, store, mut producer) = history(3).await;
    make_anew(&memory, &store, 6).await;
    let next = item(&producer, producer.next_seq(), 1);
    let error = producer
        .try_commit(next.tgbs, next.cursor)
        .await
        .unwrap_err();
    assert!(matches!(error, LogError::OtherRoot { .. }), "{error}");
    // The new log is shorter: nothing is noticed until a snapshot would go to the wrong stream.
    let (memory, store, mut producer) = history(10).await;
    make_anew(&memory, &store, 2).await;
    let mut refused = None;
    for _ in 0..600 {
        let next = item(&producer, producer.next_seq(), 1);
        match producer.try_commit(next.tgbs, next.cursor).await {
            Ok(_) => producer.log_mut().settle_snapshots().await,
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    let refused = refused.expect("within 256 versions");
    assert!(matches!(refused, LogError::OtherRoot { .. }), "{refused}");
    assert!(
        store
            .list(keys::SNAPSHOTS, None)
            .await
            .unwrap()
            .objects
            .is_empty()
    );
}

#[tokio::test]
async fn a_reader_does_not_wait_for_ever_at_a_root_that_was_removed() {
    let (memory, store, _) = history(10).await;
    let mut reader = Log::open(Arc::clone(&store), &options(2)).await.unwrap();
    make_anew(&memory, &store, 2).await;
    let mut looks = 0;
    let error = loop {
        looks += 1;
        assert!(looks < 1000, "it waits for ever");
        if let Err(e) = reader.catch_up().await {
            break e;
        }
    };
    assert!(matches!(error, LogError::OtherRoot { .. }), "{error}");
    for key in memory.keys() {
        memory.delete(&key).await.unwrap();
    }
    let error = loop {
        if let Err(e) = reader.catch_up().await {
            break e.to_string();
        }
    };
    assert!(error.contains("no stream.json"), "{error}");
}

/// Puts a snapshot and its record at `version`, as if the log had come that far.
async fn far(store: &Arc<dyn Store>, memory: &MemoryStore, version: u64) {
    let mut producer = opened(store, "p0", 1).await;
    assert!(matches!(
        commit(&mut producer, 1).await,
        Commit::Committed { .. }
    ));
    let (now, bytes) = producer.log().manifest().snapshot().unwrap();
    let record = store.get(&keys::log(now), u64::MAX).await.unwrap();
    memory.overwrite(&keys::log(version), record);
    let text = String::from_utf8(bytes).unwrap().replacen(
        &format!("\"version\":{now},"),
        &format!("\"version\":{version},"),
        1,
    );
    let signed = batchweave_core::json::sign_again(text.as_bytes()).unwrap();
    let _ = store
        .create(&keys::snapshot(version), signed.into())
        .await
        .unwrap();
}

#[tokio::test]
async fn versions_near_the_limit_are_refused_in_good_time() {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    far(&store, &memory, VERSION_LAST - 3).await;
    let mut producer = opened(&store, "p0", 2).await;
    assert!(matches!(
        commit(&mut producer, 1).await,
        Commit::Committed { .. }
    ));
    let next = item(&producer, producer.next_seq(), 1);
    let error = producer
        .try_commit(next.tgbs, next.cursor)
        .await
        .unwrap_err();
    assert!(
        matches!(error, LogError::Void(Void::VersionsUsedUp)),
        "{error}"
    );
    let mut admin = Log::open(Arc::clone(&store), &options(3)).await.unwrap();
    let request = admin.new_request();
    let seal = |_: &_| {
        Entry::Sealed(Sealed {
            request,
            reason: "full".into(),
        })
    };
    assert_eq!(
        admin.commit_entry("test", seal).await.unwrap(),
        Some(VERSION_LAST)
    );
    assert!(
        admin.manifest().end().is_some(),
        "the stream can still be ended"
    );

    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    far(&store, &memory, NUMBER_MAX - 1).await;
    let mut admin = Log::open(Arc::clone(&store), &options(4)).await.unwrap();
    let error = admin.commit_entry("test", seal).await.unwrap_err();
    assert!(
        matches!(error, LogError::Void(Void::VersionsUsedUp)),
        "{error}"
    );
    assert!(
        store.get(&keys::log(NUMBER_MAX), u64::MAX).await.is_err(),
        "nothing was put"
    );
}
