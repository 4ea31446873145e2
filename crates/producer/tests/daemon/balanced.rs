//! Balanced packing: kills do not change batches, and each document is used once.

use std::time::Duration;

use batchweave_core::limits::NUMBER_MAX;
use batchweave_daemon::config::Period;
use batchweave_producer::config::{
    LastBatch, LongDocuments, PackingMode, ProducerConfig, RunLimit,
};

use crate::follow::{come, following, scene};
use crate::order::{documents, three};
use crate::support::{World, seeds};

/// Windows of three batches of two slices with two bins of 40 tokens; some documents are longer.
pub(crate) fn balanced(mut config: ProducerConfig) -> ProducerConfig {
    config.packing.mode = PackingMode::Balanced;
    config.packing.last_batch = LastBatch::Pad;
    config.stream.slices = 2;
    let table = &mut config.packing.balanced;
    (table.tokens, table.micro_batches, table.window) = (40, 2, 3);
    table.crossover = 20;
    config
}

/// Limits the run to this many batches; the last ones end a window early.
pub(crate) fn limited_to(world: &World, batches: u64) -> ProducerConfig {
    let mut config = balanced(three(world));
    config.producer.limit = RunLimit::Batches(batches);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bins_do_not_depend_on_kills_and_hold_each_document() {
    let whole = World::new();
    whole.run(balanced(three(&whole))).await.unwrap();
    let plain = World::new();
    let mut config = balanced(three(&plain));
    config.packing.mode = PackingMode::BestFit;
    plain.run(config).await.unwrap();
    assert!(documents(&plain).await == documents(&whole).await);
    let limited = World::new();
    limited.run(limited_to(&limited, 100)).await.unwrap();
    let expected = limited.payloads().await;
    assert_eq!(expected.len(), 100);
    for seed in seeds(2, 100) {
        let world = World::new();
        let mut kills = 0;
        let limited = limited_to(&world, 100);
        let config = || {
            let mut config = limited.clone();
            config.commit.max_batches = 1 + seed as usize % 3;
            config
        };
        while !world.crash(config(), 0xba1 + seed, kills).await {
            kills += 1;
        }
        assert!(kills > 1, "{kills} kills");
        assert!(world.payloads().await == expected, "seed {seed}");
    }
}

/// The log stores the cost of each batch; stream.json has a format that earlier releases refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_the_cost_of_each_batch() {
    let world = World::new();
    world.run(balanced(three(&world))).await.unwrap();
    let mut log = world.open_log().await;
    let stream = log.manifest().stream().clone();
    assert!(stream.is_balanced());
    assert_eq!(
        (stream.format, stream.seq_len, stream.rows_per_slice),
        (2, 40, 2)
    );
    for step in 0..log.manifest().next_step() {
        let batchweave_log::Located::At(entry) = log.locate(step).await.unwrap() else {
            panic!("step {step} is missing")
        };
        let cost = entry.tgb.cost.unwrap();
        assert!(
            cost.max >= cost.mean && cost.max < NUMBER_MAX && cost.mean > 0,
            "{cost:?}"
        );
        assert_eq!(entry.tgb.rows, 4);
    }
}

/// A window of followed input ends when no document arrives within `linger`; committed batches do not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_window_of_bins_lingers_and_stays_as_it_was_through_kills() {
    for seed in seeds(2, 12) {
        let world = World::new();
        let (_, files, folder) = scene(&world, seed);
        let config = || {
            let mut config = balanced(following(&folder));
            config.commit.max_batches = 1 + seed as usize % 2;
            config.packing.balanced.window = 50;
            config.packing.balanced.linger = Period(Duration::from_millis(20));
            config
        };
        let mut before: Vec<_> = Vec::new();
        for (n, file) in (0..).zip(&files) {
            come(file, &folder);
            let run = world.crash(config(), seed << 8 | n, n);
            let _ = tokio::time::timeout(Duration::from_millis(80), run).await;
            let (task, stop) = world.spawn(config());
            world.wait_for_batches(before.len() + 1).await;
            stop.cancel();
            task.await.unwrap().unwrap();
            let now = world.payloads().await;
            assert!(now[..before.len()] == before[..], "seed {seed}");
            before = now;
        }
    }
}

/// Long documents are split, truncated or refused, as configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_documents_are_split_truncated_or_bad() {
    let tokens_of = async |long| {
        let world = World::new();
        let mut config = balanced(three(&world));
        config.packing.balanced.long = long;
        let outcome = world.run(config).await;
        outcome.map(|_| ()).map_err(|why| why.to_string())?;
        Ok::<u64, String>(documents(&world).await.values().sum())
    };
    let split = tokens_of(LongDocuments::Split).await.unwrap();
    let truncated = tokens_of(LongDocuments::Truncate).await.unwrap();
    assert!(truncated < split, "{truncated} of {split}");
    let why = tokens_of(LongDocuments::Bad).await.unwrap_err();
    assert!(
        why.contains("a bin holds 40") && why.contains("packing.balanced.long is \"bad\""),
        "{why}"
    );
}
