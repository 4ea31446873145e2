//! Order `lanes` over a store: producers at their own pace, one that is slow, finishes, a seal.

use batchweave_core::stream::StreamOrder;

use crate::testing::prelude::*;

async fn lanes(names: &[&str]) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = MemoryStore::new();
    let mut config = config(names);
    config.order = StreamOrder::Lanes;
    let _ = create(&store, &config).await.unwrap();
    store
}

async fn give(store: &Arc<dyn Store>, name: &str, seed: u8, tgbs: u64, finish: bool) {
    let mut producer = opened(store, name, seed).await;
    for _ in 0..tgbs {
        while !matches!(commit(&mut producer, 1).await, Commit::Committed { .. }) {}
    }
    while finish
        && !matches!(
            producer.try_finish().await.unwrap(),
            Commit::Committed { .. }
        )
    {}
}

fn expected(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let round = |seq| {
        counts
            .iter()
            .filter(move |(_, count)| seq < *count)
            .map(move |(name, _)| ((*name).to_owned(), seq))
    };
    (0..most).flat_map(round).collect()
}

#[tokio::test]
async fn concurrent_lanes_of_different_lengths_give_one_order() {
    let counts = [("a", 7), ("b", 3), ("c", 11), ("d", 0)];
    for round in 0..4_u8 {
        let store = lanes(&["a", "b", "c", "d"]).await;
        let mut tasks = tokio::task::JoinSet::new();
        for at in 0..counts.len() {
            // Another one begins each time.
            let (name, tgbs) = counts[(at + usize::from(round)) % counts.len()];
            let store = Arc::clone(&store);
            tasks.spawn(
                async move { give(&store, name, round * 16 + at as u8 + 1, tgbs, true).await },
            );
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(steps(&store).await, expected(&counts), "round {round}");
        let log = Log::open(store, &options(98)).await.unwrap();
        assert_eq!(
            log.manifest().end(),
            Some(21),
            "the last finish ends the stream"
        );
    }
}

#[tokio::test]
async fn a_slow_lane_holds_the_others_back_and_is_named() {
    let store = lanes(&["a", "b", "c"]).await;
    give(&store, "a", 1, 5, false).await;
    give(&store, "c", 2, 5, false).await;
    let mut log = Log::open(Arc::clone(&store), &options(3)).await.unwrap();
    let m = log.manifest();
    let awaited = m.awaited().unwrap();
    assert_eq!(
        (awaited.lane.as_str(), awaited.since),
        ("b", 1),
        "since a's first record"
    );
    assert_eq!((m.next_step(), m.waiting()), (1, 9));
    assert_eq!(log.locate(1).await.unwrap(), Located::NotYet);
    give(&store, "b", 4, 2, false).await;
    log.catch_up().await.unwrap();
    let m = log.manifest();
    assert_eq!(
        (m.awaited_lane().unwrap().as_str(), m.next_step()),
        ("b", 7)
    );
    // A seal ends the stream at the contiguous head; waiting TGBs are not lost.
    let request = log.new_request();
    let seal = |_: &_| {
        Entry::Sealed(Sealed {
            request,
            reason: "b is gone".into(),
        })
    };
    log.commit_entry("test", seal).await.unwrap();
    assert_eq!(
        (log.manifest().end(), log.manifest().awaited()),
        (Some(7), None)
    );
    assert_eq!(log.locate(7).await.unwrap(), Located::Ended { end: 7 });
    assert_eq!(log.manifest().waiting(), 5);
    assert_eq!(
        steps(&store).await,
        expected(&[("a", 3), ("b", 2), ("c", 2)])
    );
}
