//! Opening a log: the number of rounds of requests, and unusable snapshots.

use batchweave_core::json;
use batchweave_core::limits::{NUMBER_MAX, SNAPSHOTS_KEPT};
use batchweave_core::manifest::Manifest;

use crate::testing::prelude::*;
use crate::testing::rounds::Rounds;

/// A log of `versions` records, 10 steps each but for the first, and its state.
pub(super) async fn history(versions: u64) -> (Arc<MemoryStore>, Arc<dyn Store>, Committer) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::clone(&memory) as _;
    let _ = create(&store, &config(&[])).await.unwrap();
    let mut producer = opened(&store, "p0", 1).await;
    grow(&mut producer, versions).await;
    (memory, store, producer)
}

async fn grow(producer: &mut Committer, versions: u64) {
    while producer.log().manifest().next_version() < versions {
        assert!(matches!(
            commit(producer, 10).await,
            Commit::Committed { .. }
        ));
    }
    producer.log_mut().settle_snapshots().await;
}

pub(super) async fn snapshots(store: &Arc<dyn Store>) -> Vec<u64> {
    let listed = store.list(keys::SNAPSHOTS, None).await.unwrap().objects;
    let mut versions: Vec<_> = listed
        .iter()
        .filter_map(|o| keys::snapshot_version(&o.key))
        .collect();
    versions.sort_unstable();
    versions
}

fn reading() -> LogOptions {
    LogOptions {
        write_snapshots: false,
        ..options(77)
    }
}

/// Opens by a store that counts rounds; the state must be `expected`.
async fn open(store: &Arc<dyn Store>, expected: &Manifest) -> (u128, Vec<String>) {
    let rounds = Rounds::new(store);
    let log = Log::open(Arc::clone(&rounds) as _, &reading())
        .await
        .unwrap();
    assert!(log.manifest() == expected, "the state is that of the fold");
    rounds.take()
}

#[tokio::test(start_paused = true)]
async fn opening_takes_four_rounds_and_an_old_step_two_more() {
    let (_, store, producer) = history(1000).await;
    assert_eq!(snapshots(&store).await, [255, 511, 767]);
    let rounds = Rounds::new(&store);
    let mut log = Log::open(Arc::clone(&rounds) as _, &reading())
        .await
        .unwrap();
    assert!(log.manifest() == producer.log().manifest());
    let (count, asked) = rounds.take();
    assert_eq!(
        count, 3,
        "{{stream.json, LIST}}, {{snapshot, 9 records, two further ahead}}, a window"
    );
    assert!(
        asked.len() <= 2 + 1 + 9 + 2 + 256,
        "{} requests",
        asked.len()
    );
    assert!(matches!(log.locate(1030).await.unwrap(), Located::At(e) if e.step == 1030));
    assert_eq!(
        rounds.take().0,
        2,
        "the segment, and the record that proves it"
    );
    assert!(matches!(log.locate(1040).await.unwrap(), Located::At(e) if e.step == 1040));
    assert_eq!(rounds.take().0, 0, "it is kept");
    log.catch_up().await.unwrap();
    assert_eq!(
        rounds.take(),
        (1, vec![keys::log(1000)]),
        "one look at the next version"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_snapshot_windows_of_256_follow_each_other() {
    let (_, store, producer) = history(600).await;
    for version in snapshots(&store).await {
        store.delete(&keys::snapshot(version)).await.unwrap();
    }
    let (rounds, _) = open(&store, producer.log().manifest()).await;
    assert_eq!(rounds, 5, "{{stream.json, LIST}}, 8 records, three windows");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_removed_meanwhile_is_looked_for_again() {
    let (_, store, producer) = history(1000).await;
    let newest = *snapshots(&store).await.last().unwrap();
    let rounds = Rounds::new(&store);
    rounds
        .vanishing
        .lock()
        .unwrap()
        .push(keys::snapshot(newest));
    let log = Log::open(Arc::clone(&rounds) as _, &reading())
        .await
        .unwrap();
    assert!(log.manifest() == producer.log().manifest());
    let (count, _) = rounds.take();
    assert!(count <= 7, "{count} rounds");
}

type Damage = fn(&[u8]) -> Vec<u8>;

/// The snapshot with some text replaced and, again, a right digest.
fn forged(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(from), "{from} in {text:.500}");
    json::sign_again(text.replace(from, to).as_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn damaged_and_foreign_snapshots_are_ignored_and_replaced() {
    let cases: [(&str, Damage); 6] = [
        ("truncated", |b| b[..b.len() / 2].to_vec()),
        ("empty", |_| Vec::new()),
        ("flipped", |b| {
            let mut b = b.to_vec();
            let at = b.len() / 2;
            b[at] ^= 1;
            b
        }),
        ("of another stream", |b| forged(b, "03030303-", "04040404-")),
        ("after another record", |b| {
            let text = String::from_utf8_lossy(b).into_owned();
            let at = text.find("\"record\":\"").unwrap() + 10;
            forged(b, &text[at..at + 64], &"0".repeat(64))
        }),
        ("wrong on purpose, and denied by a record", |b| {
            forged(b, "\"instance\":\"test:1\"", "\"instance\":\"test:2\"")
        }),
    ];
    for (case, damage) in cases {
        let (memory, store, mut producer) = history(1000).await;
        let key = keys::snapshot(767);
        let good = store.get(&key, u64::MAX).await.unwrap();
        memory.overwrite(&key, damage(&good).into());
        let (rounds, _) = open(&store, producer.log().manifest()).await;
        // Those that do not end in their digest are read again, four times, one after the other.
        let most = if json::is_intact(&damage(&good)) {
            6
        } else {
            10
        };
        assert!(rounds <= most, "{case}: {rounds} rounds");
        // The writer of the next snapshot removes it.
        let mut writer = opened(&store, "p1", 9).await;
        assert!(
            matches!(commit(&mut producer, 10).await, Commit::Lost),
            "{case}"
        );
        grow(&mut writer, 1030).await;
        assert!(!snapshots(&store).await.contains(&767), "{case}");
        assert_eq!(snapshots(&store).await.len(), SNAPSHOTS_KEPT, "{case}");
        producer.log_mut().catch_up().await.unwrap();
        let (rounds, _) = open(&store, writer.log().manifest()).await;
        assert_eq!(rounds, 2, "{case}: as quick as ever");
        assert!(
            producer.log().manifest() == writer.log().manifest(),
            "{case}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_ahead_of_the_log_are_ignored_and_push_no_good_one_out() {
    let (_, store, _) = history(600).await;
    let good = store.get(&keys::snapshot(511), u64::MAX).await.unwrap();
    let ahead = [5_000, 90_000, NUMBER_MAX - 1, NUMBER_MAX, u64::MAX];
    for version in ahead {
        let version_in = format!("\"version\":{version},");
        let forged = forged(&good, "\"version\":511,", &version_in);
        let _ = store
            .create(&keys::snapshot(version), forged.into())
            .await
            .unwrap();
    }
    let mut producer = opened(&store, "p1", 4).await;
    let (rounds, _) = open(&store, producer.log().manifest()).await;
    assert!(rounds <= 6, "{rounds} rounds");
    grow(&mut producer, 770).await;
    let left = snapshots(&store).await;
    assert_eq!(
        left,
        [255, 511, 767, NUMBER_MAX, u64::MAX],
        "numbers beyond the limit are not snapshots"
    );
    assert_eq!(open(&store, producer.log().manifest()).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_but_unusable_snapshots_means_the_whole_log() {
    let (memory, store, producer) = history(600).await;
    for version in snapshots(&store).await {
        memory.overwrite(&keys::snapshot(version), "{\"format\":1}".into());
    }
    let newer = "{\"format\":2,\"beyond\":true}";
    memory.overwrite(&keys::snapshot(511), newer.into());
    open(&store, producer.log().manifest()).await;
    let mut writer = opened(&store, "p1", 9).await;
    grow(&mut writer, 1100).await;
    let left = snapshots(&store).await;
    assert!(!left.contains(&255) && left.contains(&1023), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn large_records_bring_a_snapshot_sooner() {
    let (_, store, _) = history(2).await;
    let log = Log::open(Arc::clone(&store), &options(5)).await.unwrap();
    let name = "large".parse().unwrap();
    let OpenOutcome::Opened(mut producer) = Committer::open(log, name, "x").await.unwrap() else {
        panic!("not opened");
    };
    for _ in 0..60 {
        assert!(matches!(
            commit(&mut producer, 150).await,
            Commit::Committed { .. }
        ));
    }
    producer.log_mut().settle_snapshots().await;
    let versions = snapshots(&store).await;
    assert!(
        !versions.is_empty(),
        "60 records of 50 kB are more than 1 MiB"
    );
    assert!(
        versions.len() < 6 && versions[0] > 10,
        "{versions:?}: not after each record"
    );
}

#[tokio::test(start_paused = true)]
async fn a_follower_writes_what_others_have_left_out() {
    let (_, store, _) = history(2).await;
    let lazy = Log::open(Arc::clone(&store), &reading()).await.unwrap();
    let name = "lazy".parse().unwrap();
    let OpenOutcome::Opened(mut lazy) = Committer::open(lazy, name, "x").await.unwrap() else {
        panic!("not opened");
    };
    let mut follower = Log::open(Arc::clone(&store), &options(6)).await.unwrap();
    for _ in 0..400 {
        assert!(matches!(
            commit(&mut lazy, 10).await,
            Commit::Committed { .. }
        ));
        follower.catch_up().await.unwrap();
    }
    follower.settle_snapshots().await;
    let versions = snapshots(&store).await;
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert!(
        (270..=330).contains(&versions[0]),
        "after some patience: {versions:?}"
    );
    assert!(open(&store, lazy.log().manifest()).await.0 <= 4);
    assert!(
        store.head(&keys::segment(1)).await.is_ok(),
        "and the segments before it"
    );
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_openings_does_not_fence_the_newer() {
    let (_, store, _) = history(2).await;
    let name = || "p0".parse().unwrap();
    let old = Log::open(Arc::clone(&store), &options(5)).await.unwrap();
    let _ = commit(&mut opened(&store, "other", 6).await, 1).await;
    let mut newer = opened(&store, "p0", 7).await;
    let epoch = newer.epoch();

    let opening = Committer::open(old, name(), "old:1").await.unwrap();
    let OpenOutcome::Fenced { by, instance } = opening else {
        panic!("{opening:?}");
    };
    assert_eq!((by, instance.as_str()), (epoch, "test:1"));
    let going_on = commit(&mut newer, 1).await;
    assert!(matches!(going_on, Commit::Committed { .. }), "{going_on:?}");

    let newest = opened(&store, "p0", 8).await;
    assert_eq!(newest.epoch(), epoch + 1);
    let fenced = commit(&mut newer, 1).await;
    assert!(
        matches!(fenced, Commit::Lost | Commit::Fenced { .. }),
        "{fenced:?}"
    );
}
