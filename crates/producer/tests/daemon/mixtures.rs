//! Changes of the mixture in a run: the same batches however the producer is killed and whenever it learns of the
//! change, and none that mixes up two weights.

use std::collections::BTreeMap;
use std::ops::Range;

use batchweave_core::ids::Seq;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Mixture;
use batchweave_core::order::{MixtureSpec, NumberedMixture, named_weights};
use batchweave_daemon::Exit;
use batchweave_producer::Outcome;
use batchweave_producer::config::{PackingMode, ProducerConfig, RunLimit, Side, SplitConfig};

use crate::balanced::limited_to;
use crate::order::{documents, three};
use crate::shuffled_rows::shuffled;
use crate::support::{World, seeds};

/// The weights of a mixture, by source.
type Weights = &'static [(&'static str, f64)];

const FIRST: Weights = &[("web", 0.2), ("code", 0.7), ("math", 0.1)];
const SECOND: Weights = &[("web", 1.0), ("code", 1.0), ("math", 2.0)];

/// Sets a mixture for producer `a` from its batch `from` on, or from a number of batches after its last one, and not before
/// the mixture that was set last.
pub(crate) async fn set(world: &World, weights: &[(&str, f64)], from: Result<Seq, Seq>) -> Seq {
    let mut log = world.open_log().await;
    let request = log.new_request();
    let name = "a".parse().unwrap();
    let mut at = 0;
    log.commit_entry("test", |m| {
        let state = m.producer(&name).unwrap();
        let earlier = state.mixtures.keys().next_back().copied().unwrap_or(0);
        at = from.unwrap_or_else(|after| (state.next_seq + after).max(earlier));
        let id = m.mixture().id + 1;
        let from: BTreeMap<_, _> = [(name.clone(), at)].into();
        let numbers = weights
            .iter()
            .map(|(name, weight)| ((*name).to_owned(), *weight));
        let mixture = NumberedMixture {
            id,
            weights: named_weights(&numbers.collect()).unwrap(),
            from: from.clone(),
        };
        let spec = MixtureSpec::read(&m.mixture().spec).unwrap();
        Entry::Mixture(Mixture {
            request,
            id,
            from,
            spec: spec.with(mixture, 0).to_json(),
            why: None,
        })
    })
    .await
    .unwrap();
    at
}

/// Runs `config` with all changes known from its start.
async fn expected(
    config: impl Fn(&World) -> ProducerConfig,
    changes: &[(Seq, Weights)],
) -> Vec<Vec<Vec<u8>>> {
    let world = World::new();
    // Opens the producer; no request of a batch has an answer yet.
    world.open_producer(config(&world)).await;
    for (from, weights) in changes {
        set(&world, weights, Ok(*from)).await;
    }
    world.run(config(&world)).await.unwrap();
    world.payloads().await
}

async fn changes_do_not_depend_on_kills(seeds: Range<u64>, make: fn(&World) -> ProducerConfig) {
    for seed in seeds {
        let world = World::new();
        let made = make(&world);
        let config = || {
            let mut config = made.clone();
            config.commit.max_batches = 1 + seed as usize % 3;
            config
        };
        let (mut changes, mut kills) = (Vec::new(), 0);
        while !world.crash(config(), 0xc0de + seed, kills).await {
            kills += 1;
            let committed = world.payloads().await.len() as Seq;
            for (n, weights) in [FIRST, SECOND].into_iter().enumerate() {
                if changes.len() == n && committed >= 10 * (n as Seq + 1) {
                    let from = set(&world, weights, Err(seed * n as Seq)).await;
                    changes.push((from, weights));
                }
            }
        }
        let expected = expected(make, &changes).await;
        let found = world.payloads().await;
        assert!(
            !changes.is_empty() && kills > 1,
            "{changes:?}, {kills} kills"
        );
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}, changes {changes:?}");
        assert_eq!(found.len(), expected.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_tokens_do_not_depend_on_kills() {
    changes_do_not_depend_on_kills(seeds(2, 6), three).await;
}

/// A change inside a window weighs the documents that are read behind the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_inside_windows_of_shuffled_rows_do_not_depend_on_kills() {
    changes_do_not_depend_on_kills(seeds(2, 6), |world| {
        shuffled(three(world), PackingMode::BestFit)
    })
    .await;
}

/// A change inside a window of bins weighs the documents that are read behind those that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_inside_windows_of_bins_do_not_depend_on_kills() {
    changes_do_not_depend_on_kills(seeds(10, 100), |world| limited_to(world, 70)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_whole_documents_do_not_depend_on_kills() {
    changes_do_not_depend_on_kills(seeds(2, 6), |world| {
        let mut config = three(world);
        config.packing.mode = PackingMode::BestFit;
        config.packing.look_ahead = 40;
        config
    })
    .await;
}

/// Changes that begin at once, while the producer has made batches beyond: it goes back, and no document is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_during_a_run_begin_where_the_log_says() {
    let world = World::new();
    let (running, _stop) = world.spawn(three(&world));
    let mut changes = Vec::new();
    for (n, weights) in [FIRST, SECOND, FIRST, SECOND].into_iter().enumerate() {
        world.wait_for_batches(8 * (n + 1)).await;
        if running.is_finished() {
            break;
        }
        changes.push((set(&world, weights, Err(0)).await, weights));
    }
    assert!(matches!(
        running.await.unwrap().unwrap(),
        Outcome::Finished { .. }
    ));
    // A change behind the last batch has no effect.
    let found = world.payloads().await;
    changes.retain(|(from, _)| *from < found.len() as Seq);
    assert!(!changes.is_empty());
    assert!(found == expected(three, &changes).await, "{changes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mixture_that_leaves_the_producer_nothing_stops_it_by_name() {
    let world = World::new();
    world.open_producer(three(&world)).await;
    let nothing = [("web", 0.0), ("code", 0.0), ("math", 0.0), ("other", 1.0)];
    set(&world, &nothing, Ok(3)).await;
    let why = world.run(three(&world)).await.unwrap_err();
    assert_eq!(why.exit(), Exit::Config);
    let why = why.to_string();
    assert!(
        why.contains("cannot follow mixture 1 with the sources of producer a: all weights are 0"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_ends_the_run_at_its_batch_or_document() {
    let limited = async |limit: RunLimit| {
        let world = World::new();
        let mut config = three(&world);
        config.producer.limit = limit;
        world.run(config).await.unwrap();
        assert!(world.ended().await);
        world
    };
    let all = limited(RunLimit::None).await.payloads().await;
    let some = limited(RunLimit::Batches(17)).await.payloads().await;
    assert!(some == all[..17]);
    let world = limited(RunLimit::Documents(100)).await;
    assert_eq!(documents(&world).await.len(), 100);
    let tokens = documents(&limited(RunLimit::Tokens(50_000)).await).await;
    let sum: u64 = tokens.values().sum();
    assert!((50_000..52_000).contains(&sum), "{sum}");
}

/// Both sides of a split have each document once, whatever the order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sides_of_a_split_share_no_document() {
    // The name of a file, as it is listed, is part of the split.
    let files = World::new();
    let side = async |every, side| {
        let world = World::new();
        let mut config = three(&files);
        config.packing.mode = PackingMode::BestFit;
        config.split = SplitConfig { every, side };
        world.run(config).await.unwrap();
        documents(&world).await
    };
    let (all, train, valid) = tokio::join!(
        side(0, Side::Train),
        side(10, Side::Train),
        side(10, Side::Valid)
    );
    assert!(valid.len() > all.len() / 20 && valid.len() < all.len() / 5);
    assert!(train.keys().all(|key| !valid.contains_key(key)));
    let both: BTreeMap<_, _> = train.into_iter().chain(valid).collect();
    assert!(both == all);
}

/// A source that joins a run gives all of its documents, and the others give theirs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_is_added_to_a_run() {
    for seed in seeds(1, 4) {
        let world = World::new();
        let whole = three(&world);
        let mut two = whole.clone();
        two.sources.pop();
        let mut kills = 0;
        while world.payloads().await.len() < 5 {
            assert!(!world.crash(two.clone(), 0xadd + seed, kills).await);
            kills += 1;
        }
        let refused = world.run(whole.clone()).await.unwrap_err();
        assert_eq!(refused.exit(), Exit::Config);
        let why = refused.to_string();
        assert!(
            why.contains("\"math\" is new, and begins with weight = 0"),
            "{why}"
        );
        let mut three = whole;
        three.sources[2].weight = 0.0;
        let before = world.payloads().await.len();
        while world.payloads().await.len() < before + 5 {
            assert!(!world.crash(three.clone(), 0xad0 + seed, kills).await);
            kills += 1;
        }
        let math = |documents: &BTreeMap<(u64, u32, u64), u64>| {
            documents.keys().filter(|(_, file, _)| *file > 3).count()
        };
        assert_eq!(math(&documents(&world).await), 0, "it has no weight yet");
        set(&world, SECOND, Err(2)).await;
        while !world.crash(three.clone(), 0xada + seed, kills).await {
            kills += 1;
        }
        let given = documents(&world).await;
        assert_eq!(math(&given), 4 * 400);
        assert_eq!(given.len(), 2500 + 2 * 3 * 300 + 4 * 400);
    }
}
