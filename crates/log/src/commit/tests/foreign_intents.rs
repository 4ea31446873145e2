//! Foreign objects under `intents/`: none is committed, and none delays a producer.

use std::collections::HashSet;

use batchweave_core::commit_policy::Action::{Gather, List};
use batchweave_core::commit_policy::{Dac, DacOptions};
use batchweave_core::ids::StreamId;
use batchweave_core::intent;
use batchweave_core::limits::INTENT_BYTES_MAX;
use batchweave_core::manifest::entry::BatchEntry;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::testing::distant::{
    ActionResult, Distant, PUT_ALL, first, intents_in, new_stream, scripted_producer,
};
use crate::testing::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Read, refused, counted and deleted.
    Refused,
    /// Read, not valid in the present state, counted and kept.
    NotNow,
    /// Not read; deleted after a while.
    Dead,
}

/// The entry for one object of two TGBs, valid in every way.
fn batch(producer: &Committer) -> BatchEntry {
    let first_seq = producer.next_seq();
    let next = item(producer, first_seq, 2);
    let name = producer.name().clone();
    BatchEntry {
        epoch: producer.epoch(),
        first_seq,
        last_seq: first_seq + 1,
        cursor_before: producer.cursor().hash(),
        cursor: next.cursor,
        mixture: producer.log().manifest().mixture_at(&name, first_seq),
        stage: 0,
        first_step: None,
        tgbs: next.tgbs,
        producer: name,
    }
}

fn encoded(stream: StreamId, batch: BatchEntry) -> (String, Vec<u8>) {
    intent::encode(stream, &Entry::Batch(batch), 0).unwrap()
}

type Craft = fn(BatchEntry, StreamId) -> (String, Vec<u8>);

fn sealing(key: String) -> (String, Vec<u8>) {
    let text = r#"{"format":1,"stream":"03030303-0303-0303-0303-030303030303","entry":
        {"kind":"sealed","request":"00000000000000000000000000000000","reason":"x"}}"#;
    (key, text.into())
}

/// Objects for an open producer that has committed nothing, by what is wrong with them.
const HOSTILE: [(&str, Fate, Craft); 13] = [
    ("random bytes", Fate::Refused, |b, stream| {
        let mut bytes = vec![0; 700];
        StdRng::seed_from_u64(7).fill(&mut bytes[..]);
        (encoded(stream, b).0, bytes)
    }),
    ("one MiB", Fate::Dead, |b, stream| {
        (encoded(stream, b).0, vec![b' '; 1 << 20])
    }),
    (
        "deep nesting, as large as allowed",
        Fate::Refused,
        |b, stream| (encoded(stream, b).0, vec![b'['; INTENT_BYTES_MAX]),
    ),
    ("cut short", Fate::Refused, |b, stream| {
        let (key, mut bytes) = encoded(stream, b);
        bytes.truncate(bytes.len() - 9);
        (key, bytes)
    }),
    ("of another stream", Fate::Refused, |b, _| {
        encoded(StreamId::from_random([4; 16]), b)
    }),
    (
        "more in the key than in the object",
        Fate::Refused,
        |b, stream| {
            let (key, bytes) = encoded(stream, b);
            (key.replace("/0-1.json", "/0-7.json"), bytes)
        },
    ),
    ("a seal under a batch's key", Fate::Refused, |b, stream| {
        sealing(encoded(stream, b).0)
    }),
    ("of an epoch to come", Fate::Dead, |mut b, stream| {
        b.epoch += 1;
        encoded(stream, b)
    }),
    ("half of a shared object", Fate::Refused, |mut b, stream| {
        b.tgbs.pop();
        b.last_seq = b.first_seq;
        encoded(stream, b)
    }),
    (
        "objects outside of its folder",
        Fate::Refused,
        |mut b, stream| {
            b.tgbs[1].parts[0].key = "data/another/1-00/000000000000-000000000001.0.0.tgb".into();
            encoded(stream, b)
        },
    ),
    ("another cursor before", Fate::Refused, |mut b, stream| {
        b.cursor_before = Hash::sha256(b"elsewhere");
        encoded(stream, b)
    }),
    (
        "far more TGBs than it has",
        Fate::Refused,
        |mut b, stream| {
            b.last_seq = 1 << 52;
            encoded(stream, b)
        },
    ),
    ("of a mixture to come", Fate::NotNow, |mut b, stream| {
        b.mixture += 1;
        encoded(stream, b)
    }),
];

/// More foreign objects than one round lists.
const UNKNOWN: usize = 5000;

/// Stores hostile objects: each next to an intent of a producer of its own, which never commits, and those that
/// need no producer. Returns their keys and fates.
async fn leave(store: &Arc<dyn Store>) -> Vec<(String, Fate)> {
    let stream = config(&[]).stream_id;
    let mut left = Vec::new();
    for (n, (_, fate, craft)) in HOSTILE.iter().enumerate() {
        let victim = opened(store, &format!("h{n}"), 100 + n as u8).await;
        left.push((craft(batch(&victim), stream), *fate));
    }
    let old = opened(store, "fenced", 150).await;
    let _ = opened(store, "fenced", 151).await;
    left.push((encoded(stream, batch(&old)), Fate::Dead));
    let mut never = batch(&old);
    never.producer = "never".parse().unwrap();
    left.push((encoded(stream, never), Fate::Dead));
    for n in 0..UNKNOWN {
        let names = [format!("x/{n}"), format!("{n}"), format!("x/1/{n}-y.json")];
        let key = format!("intents/{}", names[n % 3]);
        left.push(((key, b"?".to_vec()), Fate::Dead));
    }
    let mut keys = Vec::new();
    for ((key, bytes), fate) in left {
        let _ = store.create(&key, Bytes::from(bytes)).await.unwrap();
        keys.push((key, fate));
    }
    keys
}

fn of(left: &[(String, Fate)], fate: Fate) -> Vec<String> {
    let mut keys: Vec<_> = left
        .iter()
        .filter(|(_, f)| *f == fate)
        .map(|(key, _)| key.clone())
        .collect();
    keys.sort();
    keys
}

/// Stores an intent whose owner does nothing more; returns its TGBs in the form of `steps`.
async fn real(store: &Arc<dyn Store>) -> Vec<(String, u64)> {
    let owner = opened(store, "real", 60).await;
    let stream = owner.log().manifest().stream_id();
    let (key, bytes) = encoded(stream, batch(&owner));
    let _ = store.create(&key, bytes.into()).await.unwrap();
    vec![("real".to_owned(), 0), ("real".to_owned(), 1)]
}

#[tokio::test(start_paused = true)]
async fn what_strangers_leave_is_never_committed() {
    let (memory, store) = new_stream().await;
    let left = leave(&store).await;
    let real = real(&store).await;
    let refused = of(&left, Fate::Refused);
    let useless = refused.len() + of(&left, Fate::NotNow).len();
    let (leader, leading) = scripted_producer(&store, "leader", 1).await;
    let progress = leading.progress();
    // A round lists 4,000 keys, and the next continues from there: by now each was listed and read.
    let came = leader.run(&[List, Gather, PUT_ALL]).await;
    let (ActionResult::Listed(listed), ActionResult::Gathered(gathered)) = (came[0], came[1])
    else {
        panic!("{came:?}")
    };
    assert_eq!((listed, gathered), (useless + 1, 1), "the real one is left");
    assert_eq!(came[2], ActionResult::Won, "and committed");
    assert_eq!(progress.borrow().refused_intents, useless as u64);
    let mut expected = vec![first()];
    expected.extend(real);
    assert_eq!(steps(&store).await, expected);
    // The next list deletes refused and committed intents.
    leader.run(&[List]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let there = intents_in(&memory);
    assert!(
        refused.iter().all(|key| !there.contains(key)),
        "{refused:?}"
    );
    let stay = of(&left, Fate::NotNow);
    assert!(stay.iter().all(|key| there.contains(key)), "{stay:?}");
    let nothing = [
        ActionResult::Listed(0),
        ActionResult::Gathered(0),
        ActionResult::Gathered(0),
    ];
    for _ in 0..4 {
        let came = leader.run(&[List, Gather, PUT_ALL]).await;
        assert_eq!(came, nothing, "read once; no record without an entry");
    }
    assert_eq!(progress.borrow().refused_intents, useless as u64);
    leading.close(false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_deleted_and_nothing_else() {
    let (memory, store) = new_stream().await;
    let left = leave(&store).await;
    let dead: HashSet<String> = of(&left, Fate::Dead).into_iter().collect();
    let (leader, leading) = scripted_producer(&store, "leader", 1).await;
    let mut there = intents_in(&memory).len();
    let mut rounds = 0;
    while intents_in(&memory).iter().any(|key| dead.contains(key)) {
        leader.run(&[List]).await;
        // Many in one round; as long as a slow store takes for that.
        tokio::time::sleep(Duration::from_mins(1)).await;
        let now = intents_in(&memory).len();
        assert!(there - now <= 4000, "{} at once", there - now);
        there = now;
        rounds += 1;
        assert!(rounds < 1000, "{there} are still there");
    }
    println!("{} dead in {rounds} rounds", dead.len());
    let rest = left.len() - dead.len();
    assert_eq!(there, rest, "nothing else was deleted");
    leading.close(false).await.unwrap();
}

/// Every key under which a DAC producer is likely to announce its first items is taken.
async fn squat(store: &Arc<dyn Store>, name: &str) {
    for last in 0..8 {
        let key = format!("intents/{name}/1/0-{last}.json");
        let _ = store.create(&key, "squatter".into()).await.unwrap();
    }
}

async fn produce(store: Arc<dyn Store>, name: String, seed: u64) -> CommitProgress {
    let producer = opened(&store, &name, seed as u8).await;
    let all: Vec<_> = (0..25).map(|i| item(&producer, i, 1)).collect();
    let policy = Dac::new(DacOptions {
        seed,
        ..DacOptions::default()
    });
    let queue = producer.spawn(policy, CommitOptions::default());
    let progress = queue.progress();
    let mut rng = StdRng::seed_from_u64(seed);
    for next in all {
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..100))).await;
        assert!(queue.submit(next).await, "{name} has ended early");
    }
    let (end, _) = queue.close(true).await.unwrap();
    assert_eq!(end, CommitEnd::Finished { tgbs: 25 });
    *progress.borrow()
}

#[tokio::test(start_paused = true)]
async fn producers_go_on_among_what_strangers_leave() {
    for seed in [10, 30] {
        let (_, store) = new_stream().await;
        let _ = leave(&store).await;
        let mut expected = real(&store).await;
        let mut tasks = JoinSet::new();
        for n in 0..8 {
            let name = format!("p{n}");
            squat(&store, &name).await;
            expected.extend((0..25).map(|seq| (name.clone(), seq)));
            let distant = Distant::new(&store, seed + n);
            tasks.spawn(produce(distant, name, seed + n));
        }
        let all = tokio::time::timeout(Duration::from_mins(1), tasks.join_all())
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: somebody waits for ever"));
        let refused: u64 = all.iter().map(|c| c.refused_intents).sum();
        let combined: u64 = all.iter().map(|c| c.combined).sum();
        println!("seed {seed}: {refused} refused, {combined} combined");
        assert!(refused > 0 && combined > 0, "seed {seed}");
        let mut committed = steps(&store).await;
        committed.sort();
        expected.sort();
        assert_eq!(committed, expected, "seed {seed}");
    }
}
