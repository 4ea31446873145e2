//! Index segments that are missing, damaged or of another log: detected, ignored, written again.

use crate::testing::prelude::*;
use crate::testing::rounds::Rounds;

/// 440 records of 10 steps: segments 0 to 3 are stored, the newest snapshot lies within segment 2.
async fn history() -> (Arc<MemoryStore>, Arc<dyn Store>, Committer) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    let mut producer = opened(&store, "p0", 1).await;
    for _ in 0..440 {
        assert!(matches!(
            commit(&mut producer, 10).await,
            Commit::Committed { .. }
        ));
    }
    producer.log_mut().settle_snapshots().await;
    (memory, store, producer)
}

fn with_digest(text: &str) -> Vec<u8> {
    batchweave_core::json::sign_again(text.as_bytes()).unwrap()
}

type Damage = fn(&str) -> Vec<u8>;

#[tokio::test(start_paused = true)]
async fn a_segment_that_is_not_of_this_log_is_ignored_and_rebuilt() {
    let cases: [(&str, Damage); 6] = [
        ("truncated", |t| t[..t.len() - 100].into()),
        ("not JSON", |_| b"\xff\xfe".into()),
        ("a digit flipped", |t| {
            t.replacen("\"length\":1024", "\"length\":1025", 1).into()
        }),
        ("of another stream", |t| {
            with_digest(&t.replacen("03030303-", "04040404-", 1))
        }),
        ("of another log under the same id", |t| {
            let at = t.find("\"record\":\"").unwrap() + 10;
            with_digest(&t.replace(&t[at..at + 64], &"0".repeat(64)))
        }),
        ("of versions to come", |t| {
            let at = t.find("\"filled\":{\"version\":").unwrap() + 20;
            with_digest(&format!("{}9{}", &t[..at], &t[at..]))
        }),
    ];
    for (case, damage) in cases {
        let (memory, store, producer) = history().await;
        let key = keys::segment(0);
        let good = store.get(&key, u64::MAX).await.unwrap();
        let text = String::from_utf8(good.to_vec()).unwrap();
        memory.overwrite(&key, damage(&text).into());
        let reading = LogOptions {
            write_snapshots: false,
            ..options(7)
        };
        let mut reader = Log::open(Arc::clone(&store), &reading).await.unwrap();
        let mut writer = Log::open(Arc::clone(&store), &options(8)).await.unwrap();
        for (log, repairs) in [(&mut reader, false), (&mut writer, true)] {
            let found = log.locate(700).await.unwrap();
            let Located::At(entry) = found else {
                panic!("{case}: {found:?}")
            };
            assert_eq!(
                (entry.step, entry.seq, entry.tgb.parts[0].length),
                (700, 700, 1024),
                "{case}"
            );
            let stored = store.get(&key, u64::MAX).await.unwrap();
            assert_eq!(
                stored == good,
                repairs,
                "{case}: only who may write repairs it"
            );
        }
        assert_eq!(producer.log().manifest().void_entries(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_segment_is_rebuilt_from_the_snapshot_before_it() {
    let (_, store, _) = history().await;
    let before = store.get(&keys::segment(3), u64::MAX).await;
    assert!(before.is_err(), "it is stored with the next snapshot");
    let rounds = Rounds::new(&store);
    let mut log = Log::open(Arc::clone(&rounds) as _, &options(3))
        .await
        .unwrap();
    log.snapshots.unstored.clear();
    rounds.take();
    assert!(matches!(log.locate(3500).await.unwrap(), Located::At(e) if e.seq == 3500));
    let (_, asked) = rounds.take();
    assert!(
        !asked.contains(&keys::log(0)),
        "not from the beginning: {asked:?}"
    );
    assert!(
        store.get(&keys::segment(3), u64::MAX).await.is_ok(),
        "and stored for the others"
    );
    store.delete(&keys::segment(1)).await.unwrap();
    assert!(matches!(log.locate(1500).await.unwrap(), Located::At(e) if e.seq == 1500));
    let (_, asked) = rounds.take();
    assert!(asked.contains(&keys::log(0)), "no snapshot is before it");
    assert!(store.get(&keys::segment(1), u64::MAX).await.is_ok());
}
