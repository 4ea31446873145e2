//! Many producers with DAC over a store some milliseconds away: combining, a leader that dies, a
//! store that allows no intents. Time is virtual.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use batchweave_core::commit_policy::{Dac, DacOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::testing::distant::{Distant, intents_in, new_stream};
use crate::testing::prelude::*;

/// Far longer than any of this takes in virtual time.
const BOUND: Duration = Duration::from_mins(1);

/// Opened by DAC itself, so that openings too may be announced and combined.
async fn joined(store: Arc<dyn Store>, name: &str, seed: u64) -> (Committer, Dac) {
    let mut policy = Dac::new(DacOptions {
        seed,
        ..DacOptions::default()
    });
    let log = Log::open(store, &options(seed as u8)).await.unwrap();
    let opening = Committer::open_with(log, name.parse().unwrap(), "test:1", &mut policy);
    match opening.await.unwrap() {
        OpenOutcome::Opened(producer) => (*producer, policy),
        other => panic!("{other:?}"),
    }
}

/// Opens, commits `items` objects of two TGBs at random intervals, and finishes.
async fn produce(
    store: Arc<Distant>,
    name: String,
    seed: u64,
    items: u64,
    mut seen: Option<watch::Sender<CommitProgress>>,
) -> CommitProgress {
    let (producer, policy) = joined(store, &name, seed).await;
    let all: Vec<_> = (0..items).map(|i| item(&producer, i * 2, 2)).collect();
    let queue = producer.spawn(policy, CommitOptions::default());
    let progress = queue.progress();
    if let Some(seen) = seen.take() {
        let mut progress = queue.progress();
        tokio::spawn(async move {
            while progress.changed().await.is_ok() {
                seen.send_replace(*progress.borrow());
            }
        });
    }
    let mut rng = StdRng::seed_from_u64(seed);
    for next in all {
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..150))).await;
        assert!(queue.submit(next).await, "{name} has ended early");
    }
    let (end, _) = queue.close(true).await.unwrap();
    assert_eq!(end, CommitEnd::Finished { tgbs: items * 2 }, "{name}");
    *progress.borrow()
}

/// Returns the number of TGBs of each producer, after checking that each is there once and in order.
async fn in_order(store: &Arc<dyn Store>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (name, seq) in steps(store).await {
        let next = counts.entry(name.clone()).or_insert(0);
        assert_eq!(seq, *next, "{name}: each TGB once and in order");
        *next += 1;
    }
    counts
}

fn total(all: &[CommitProgress], count: impl Fn(&CommitProgress) -> u64) -> u64 {
    all.iter().map(count).sum()
}

#[tokio::test(start_paused = true)]
async fn sixteen_producers_commit_for_each_other() {
    for seed in [100, 200, 300] {
        let (memory, store) = new_stream().await;
        let mut tasks = JoinSet::new();
        for n in 0..16 {
            let distant = Distant::new(&store, seed + n);
            tasks.spawn(produce(distant, format!("p{n}"), seed + n, 25, None));
        }
        let all = tokio::time::timeout(BOUND, tasks.join_all())
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: not done in {BOUND:?}"));
        let [records, lost, announced, combined] = [
            total(&all, |c| c.records),
            total(&all, |c| c.lost),
            total(&all, |c| c.announced),
            total(&all, |c| c.combined),
        ];
        println!(
            "seed {seed}: {records} records, {lost} lost, {announced} announced, {combined} combined"
        );
        assert!(combined > 0, "seed {seed}: nobody combined");
        assert!(records < 16 * 25, "seed {seed}: {records} records");
        let expected = (0..16).map(|n| (format!("p{n}"), 50));
        assert_eq!(in_order(&store).await, expected.collect(), "seed {seed}");
        let left = intents_in(&memory);
        assert_eq!(left, [""; 0], "seed {seed}: owners delete theirs");
        let reads = total(&all, |c| c.refused_intents);
        assert_eq!(reads, 0, "seed {seed}: all intents were real");
    }
}

/// Waits until a producer leads while others have announced entries.
async fn some_leader(seen: &[watch::Receiver<CommitProgress>]) -> usize {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now: Vec<_> = seen.iter().map(|s| *s.borrow()).collect();
        let announced = now.iter().filter(|c| c.announced > 0).count();
        if let Some(leader) = now.iter().position(|c| c.leading)
            && announced > 2
        {
            return leader;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_delays_no_other_producer() {
    // It dies at another point of its round each time.
    for seed in 1..=12 {
        let (_, store) = new_stream().await;
        let mut tasks = JoinSet::new();
        let (mut ways, mut seen) = (Vec::new(), Vec::new());
        for n in 0..8 {
            let distant = Distant::new(&store, seed * 20 + n);
            let (send, receive) = watch::channel(CommitProgress::default());
            ways.push(Arc::clone(&distant));
            seen.push(receive);
            let name = format!("p{n}");
            let task = produce(distant, name, seed * 20 + n, 25, Some(send));
            tasks.spawn(async move { (n as usize, task.await) });
        }
        let leader = tokio::time::timeout(BOUND, some_leader(&seen))
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: nobody ever led"));
        tokio::time::sleep(Duration::from_millis(seed * 17)).await;
        ways[leader].die();
        let others = async {
            for _ in 0..7 {
                let (n, _) = tasks.join_next().await.unwrap().unwrap();
                assert_ne!(n, leader, "seed {seed}: the dead do not finish");
            }
        };
        let ended = tokio::time::timeout(BOUND, others).await;
        assert!(ended.is_ok(), "seed {seed}: the others wait for p{leader}");
        tasks.shutdown().await;
        let mut counts = in_order(&store).await;
        let dead = counts.remove(&format!("p{leader}")).unwrap_or(0);
        assert!(dead <= 50 && dead.is_multiple_of(2), "seed {seed}: {dead}");
        assert!(
            counts.len() == 7 && counts.values().all(|c| *c == 50),
            "seed {seed}: {counts:?}"
        );
        // Its successor continues from its state in the log.
        let (successor, _) = joined(Arc::clone(&store), &format!("p{leader}"), 250).await;
        assert_eq!((successor.epoch(), successor.next_seq()), (2, dead));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_allows_no_intents_is_written_to_all_the_same() {
    for seed in [40, 80] {
        let (memory, store) = new_stream().await;
        let mut tasks = JoinSet::new();
        let mut ways = Vec::new();
        for n in 0..8 {
            let distant = Distant::without_intents(&store, seed + n);
            ways.push(Arc::clone(&distant));
            tasks.spawn(produce(distant, format!("p{n}"), seed + n, 20, None));
        }
        let all = tokio::time::timeout(BOUND, tasks.join_all())
            .await
            .unwrap_or_else(|_| panic!("seed {seed}: not done in {BOUND:?}"));
        let denied: u64 = ways.iter().map(|w| w.denied.load(Relaxed)).sum();
        println!(
            "seed {seed}: {} lost, {denied} denied",
            total(&all, |c| c.lost)
        );
        assert!(denied > 0, "seed {seed}: intents were tried");
        assert_eq!(total(&all, |c| c.announced + c.combined), 0);
        let expected = (0..8).map(|n| (format!("p{n}"), 40));
        assert_eq!(in_order(&store).await, expected.collect(), "seed {seed}");
        assert_eq!(intents_in(&memory), [""; 0]);
    }
}
