//! The log over a memory store, with answers lost, late and wrong.

use crate::testing::prelude::*;

mod combining;
mod contention;
mod dropped_futures;
mod foreign_intents;
mod intents;
mod lanes;
mod mixtures;
mod refused_intents;

#[tokio::test]
async fn a_stream_is_created_once_and_differences_are_listed() {
    let store = stream(&["p0"]).await;
    let again = create(&store, &config(&["p0"])).await.unwrap();
    assert!(matches!(again, Creation::Existed(_)));
    let mut other = config(&["p0", "p1"]);
    other.slices = 8;
    let error = create(&store, &other).await.unwrap_err().to_string();
    assert!(
        error.contains("slices") && error.contains("producers"),
        "{error}"
    );
    let empty: Arc<dyn Store> = MemoryStore::new();
    let error = Log::open(Arc::clone(&empty), &options(1))
        .await
        .unwrap_err();
    assert!(matches!(error, LogError::NoStream { .. }), "{error}");
    let _ = empty.create("holiday/photo.jpg", "x".into()).await.unwrap();
    let error = create(&empty, &config(&[])).await.unwrap_err();
    assert!(matches!(error, LogError::RootInUse { .. }), "{error}");
}

#[tokio::test]
async fn lost_late_and_wrong_answers_neither_lose_nor_double() {
    use Answer::*;
    let scripts: [&[Answer]; 9] = [
        &[DoneLost],
        &[NotDoneLost],
        &[DoneLater],
        &[DoneExists],
        &[Conflict, Conflict],
        &[Throttled, Throttled, DoneLost],
        &[NotDoneLost, NotDoneLost, DoneLater],
        &[DoneLater, NotDoneLost, Conflict, DoneExists],
        &[NotDoneLost, Denied],
    ];
    for script in scripts {
        let scripted = Scripted::new(stream(&[]).await);
        let store: Arc<dyn Store> = Arc::clone(&scripted) as _;
        let mut producer = opened(&store, "p0", 1).await;
        scripted.answer_with(script);
        assert!(
            matches!(commit(&mut producer, 2).await, Commit::Committed { .. }),
            "{script:?}"
        );
        assert!(
            matches!(commit(&mut producer, 1).await, Commit::Committed { .. }),
            "{script:?}"
        );
        let expected: Vec<_> = (0..3).map(|seq| ("p0".to_owned(), seq)).collect();
        assert_eq!(steps(&store).await, expected, "{script:?}");
        let creates = scripted.creates.lock().unwrap();
        for v in 0..3 {
            let mut bodies: Vec<_> = creates
                .iter()
                .filter(|(k, _)| *k == keys::log(v))
                .map(|(_, b)| b)
                .collect();
            bodies.dedup();
            assert_eq!(
                bodies.len(),
                1,
                "{script:?}: only the same bytes go to the same version"
            );
        }
    }
}

#[tokio::test]
async fn a_put_that_surely_did_not_happen_is_an_error_that_names_it() {
    let scripted = Scripted::new(stream(&[]).await);
    let store: Arc<dyn Store> = Arc::clone(&scripted) as _;
    let mut producer = opened(&store, "p0", 1).await;
    scripted.answer_with(&[Answer::Denied]);
    let next = item(&producer, 0, 1);
    let error = producer
        .try_commit(next.tgbs, next.cursor)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("log/00000000000000000001.json"), "{error}");
    assert!(steps(&store).await.is_empty());
}

#[tokio::test]
async fn the_old_instance_is_fenced_when_it_wakes() {
    let store = stream(&["p0"]).await;
    let mut old = opened(&store, "p0", 1).await;
    assert!(matches!(
        commit(&mut old, 2).await,
        Commit::Committed { .. }
    ));
    let mut new = opened(&store, "p0", 2).await;
    assert_eq!(
        (new.epoch(), new.next_seq(), new.cursor()),
        (2, 2, old.cursor())
    );
    assert_eq!(
        commit(&mut old, 1).await,
        Commit::Lost,
        "it meets the opening at its version"
    );
    let fenced = Commit::Fenced {
        by: 2,
        instance: "test:1".into(),
    };
    assert_eq!(commit(&mut old, 1).await, fenced);
    assert!(matches!(
        commit(&mut new, 1).await,
        Commit::Committed { .. }
    ));
    assert!(matches!(
        new.try_finish().await.unwrap(),
        Commit::Committed { .. }
    ));
    assert_eq!(steps(&store).await.len(), 3);
    let log = Log::open(store, &options(3)).await.unwrap();
    assert_eq!(log.manifest().end(), Some(3));
    let reopened = Committer::open(log, "p0".parse().unwrap(), "x")
        .await
        .unwrap();
    assert!(matches!(reopened, OpenOutcome::Finished { tgbs: 3 }));
}

#[tokio::test]
async fn sixteen_producers_share_one_log() {
    let store = stream(&[]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..16_u8 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let producer = opened(&store, &format!("p{n}"), n + 10).await;
            let items: Vec<_> = (0..20).map(|i| item(&producer, i * 2, 2)).collect();
            let queue = producer.spawn(policy(u64::from(n)), CommitOptions::default());
            for next in items {
                assert!(queue.submit(next).await);
            }
            let (end, _) = queue.close(true).await.unwrap();
            assert_eq!(end, CommitEnd::Finished { tgbs: 40 });
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let all = steps(&store).await;
    assert_eq!(all.len(), 16 * 40);
    for n in 0..16 {
        let name = format!("p{n}");
        let seqs: Vec<_> = all
            .iter()
            .filter(|(p, _)| *p == name)
            .map(|(_, s)| *s)
            .collect();
        assert!(seqs.iter().copied().eq(0..40), "{name}: {seqs:?}");
    }
}

#[tokio::test]
async fn snapshots_carry_an_opening_and_segments_carry_old_steps() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 0..300 {
        assert!(matches!(
            commit(&mut producer, 10).await,
            Commit::Committed { .. }
        ));
    }
    producer.log_mut().settle_snapshots().await;
    let snapshots = store.list(keys::SNAPSHOTS, None).await.unwrap().objects;
    assert!(
        !snapshots.is_empty() && snapshots.len() <= 3,
        "{snapshots:?}"
    );
    assert!(store.head(&keys::segment(0)).await.is_ok());
    let scripted = Scripted::new(Arc::clone(&store));
    let log = Log::open(Arc::clone(&scripted) as Arc<dyn Store>, &options(2))
        .await
        .unwrap();
    assert_eq!(
        log.manifest(),
        producer.log().manifest(),
        "snapshot and tail equal the fold"
    );
    let gets = *scripted.gets.lock().unwrap();
    assert!(gets < 300, "{gets} GETs: the snapshot was not used");
    assert_eq!(steps(&store).await.len(), 3000);
    store.delete(&keys::segment(0)).await.unwrap();
    assert_eq!(
        steps(&store).await.len(),
        3000,
        "a missing segment is rebuilt from the log"
    );
    for meta in snapshots {
        store.delete(&meta.key).await.unwrap();
        let _ = store
            .create(&meta.key, "{\"format\":1}".into())
            .await
            .unwrap();
    }
    assert_eq!(
        steps(&store).await.len(),
        3000,
        "unusable snapshots are ignored"
    );
}

#[tokio::test]
async fn a_gap_is_named() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 0..5 {
        assert!(matches!(
            commit(&mut producer, 1).await,
            Commit::Committed { .. }
        ));
    }
    store.delete(&keys::log(3)).await.unwrap();
    let error = Log::open(store, &options(2)).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LogError::Gap { later: 4, .. }), "{text}");
    assert!(text.contains(&keys::log(3)), "{text}");
}

#[tokio::test]
async fn an_unreadable_record_stops_writers_too_until_it_is_repaired() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    let _ = store.create(&keys::log(1), "garbage".into()).await.unwrap();
    let next = item(&producer, 0, 1);
    let error = producer
        .try_commit(next.tgbs, next.cursor)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&keys::log(1)) && error.contains("repair"),
        "{error}"
    );
    let bad = Hash::sha256(b"garbage");
    let stream = producer.log().manifest().stream_id();
    let repair = Repair {
        format: 1,
        stream,
        version: 1,
        bad,
        reason: "test".into(),
    };
    let _ = store
        .create(&keys::repair(1), repair.to_json().into())
        .await
        .unwrap();
    assert_eq!(commit(&mut producer, 1).await, Commit::Lost);
    assert!(matches!(
        commit(&mut producer, 1).await,
        Commit::Committed { version: 2, .. }
    ));
    let log = Log::open(store, &options(2)).await.unwrap();
    assert_eq!(
        (log.manifest().void_records(), log.manifest().next_step()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_seal_stops_producers_and_ends_the_stream() {
    let store = stream(&[]).await;
    let mut producer = opened(&store, "p0", 1).await;
    assert!(matches!(
        commit(&mut producer, 2).await,
        Commit::Committed { .. }
    ));
    let mut admin = Log::open(Arc::clone(&store), &options(2)).await.unwrap();
    let request = admin.new_request();
    let seal = |_: &_| {
        Entry::Sealed(Sealed {
            request,
            reason: "enough".into(),
        })
    };
    assert_eq!(admin.commit_entry("test", seal).await.unwrap(), Some(2));
    assert_eq!(
        admin.commit_entry("test", seal).await.unwrap(),
        None,
        "a repeat is a no-op"
    );
    assert_eq!(commit(&mut producer, 1).await, Commit::Lost);
    assert_eq!(commit(&mut producer, 1).await, Commit::Sealed);
    let mut log = Log::open(store, &options(3)).await.unwrap();
    assert_eq!(log.locate(2).await.unwrap(), Located::Ended { end: 2 });
    assert!(matches!(log.locate(1).await.unwrap(), Located::At(_)));
}
