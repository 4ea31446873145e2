//! Stages into and out of `balanced`: the same batches however the producer is killed and whenever it learns of a stage.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_daemon::config::Period;
use batchweave_producer::Outcome;
use batchweave_producer::config::{
    LastBatch, PackingMode, ProducerConfig, RunLimit, SourceContent,
};
use batchweave_producer::packing::Extra;

use crate::balanced::balanced;
use crate::follow::{come, following, scene};
use crate::formats::chat;
use crate::order::three;
use crate::stage_tokens::tokens;
use crate::stages::{
    BINS, Change, Shape, set, stages_begin_where_the_log_says, stages_do_not_depend_on_kills,
    with_stages,
};
use crate::support::{Corpus, World, seeds};

/// Rows of a stream whose stages have bins.
fn rows(mut config: ProducerConfig, mode: PackingMode) -> ProducerConfig {
    config.packing.mode = mode;
    config.packing.last_batch = LastBatch::Pad;
    config.stream.slices = 2;
    let table = &mut config.packing.balanced;
    (table.window, table.crossover) = (3, 20);
    config
}

const INTO_BINS: [Shape; 3] = [
    ("bins", 2, 40, BINS),
    ("packed", 3, 24, 9),
    ("wide", 1, 70, BINS),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_from_a_sequence_into_bins_do_not_depend_on_kills() {
    let planned = [
        (3, 2, Change::Stage("bins")),
        (9, 1, Change::Stage("packed")),
        (14, 2, Change::Stage("wide")),
    ];
    stages_do_not_depend_on_kills(seeds(3, 12), &planned, |world| {
        let config = World::config(&Corpus::new(1, 200).write(world, 3), "a");
        with_stages(rows(config, PackingMode::Concat), &INTO_BINS)
    })
    .await;
}

/// Three stages within one window of the first: two of bins, then a sequence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_within_a_window_of_bins_do_not_depend_on_kills() {
    let planned = [
        (4, 1, Change::Stage("wide")),
        (4, 2, Change::Stage("small")),
        (4, 3, Change::Stage("long")),
        (12, 3, Change::Stage("wide-again")),
    ];
    stages_do_not_depend_on_kills(seeds(3, 12), &planned, |world| {
        let config = World::config(&Corpus::new(5, 260).write(world, 2), "a");
        let mut config = balanced(config);
        config.packing.fields = Extra::ALL.to_vec();
        let shapes = [
            ("wide", 1, 90, BINS),
            ("small", 3, 18, BINS),
            ("long", 1, 100, 0),
            ("wide-again", 2, 60, BINS),
        ];
        with_stages(config, &shapes)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_conversations_into_bins_do_not_depend_on_kills() {
    let planned = [
        (1, 1, Change::Stage("bins")),
        (2, 1, Change::Stage("short")),
    ];
    let shapes = [("bins", 1, 90, BINS), ("short", 1, 60, 7)];
    stages_do_not_depend_on_kills(seeds(2, 8), &planned, |world| {
        let mut config = rows(chat(world, "chat.jsonl"), PackingMode::Chat);
        config.packing.look_ahead = 20;
        (config.stream.slices, config.packing.balanced.window) = (1, 2);
        (config.stream.rows_per_slice, config.stream.seq_len) = (1, 100);
        with_stages(config, &shapes)
    })
    .await;
    stages_do_not_depend_on_kills(seeds(2, 8), &planned[1..], |world| {
        let mut config = balanced(chat(world, "chat.jsonl"));
        config.source.content = SourceContent::Conversations;
        config.stream.slices = 1;
        let table = &mut config.packing.balanced;
        (table.tokens, table.micro_batches, table.window) = (90, 1, 2);
        with_stages(config, &shapes[1..])
    })
    .await;
}

/// A mixture that begins close to a stage weighs the documents behind those that were taken at its batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_bins_and_mixtures_do_not_depend_on_kills() {
    let planned = [
        (4, 3, Change::Stage("bins")),
        (
            4,
            5,
            Change::Mixture(&[("web", 0.2), ("code", 0.7), ("math", 0.1)]),
        ),
        (14, 2, Change::Stage("packed")),
    ];
    stages_do_not_depend_on_kills(seeds(2, 6), &planned, |world| {
        let mut config = rows(three(world), PackingMode::BestFit);
        config.packing.look_ahead = 60;
        (config.stream.rows_per_slice, config.stream.seq_len) = (2, 900);
        let shapes = [("bins", 2, 1500, BINS), ("packed", 2, 1200, 5)];
        let mut config = with_stages(config, &shapes);
        let weights = [("web", 1.0), ("code", 2.0), ("math", 0.5)];
        config.stages[1].weights = weights
            .map(|(name, weight)| (name.to_owned(), weight))
            .into();
        config
    })
    .await;
}

/// Stages that begin at once, while the producer has made batches beyond: it goes back, and no token is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_bins_during_a_run_begin_where_the_log_says() {
    stages_begin_where_the_log_says(&INTO_BINS, |config| rows(config, PackingMode::Concat)).await;
}

/// A producer that starts behind its last batch, inside of a hand-over, ends without the documents that this needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_inside_a_hand_over_is_reached_once() {
    let world = World::new();
    let config = World::config(&Corpus::new(1, 200).write(&world, 3), "a");
    // What the first batch of a window leaves fills more than twenty batches of the stage.
    let mut config = with_stages(balanced(config), &[("packed", 1, 6, 9)]);
    config.commit.max_batches = 1;
    config.packing.object_bytes.0 = 1;
    world.open_producer(config.clone()).await;
    set(&world, &config, "packed", Ok(1)).await;
    config.producer.limit = RunLimit::Batches(5);
    world.run(config.clone()).await.unwrap();
    let whole = world.payloads().await;
    assert_eq!(whole.len(), 5);
    let other = World::new();
    other.open_producer(config.clone()).await;
    set(&other, &config, "packed", Ok(1)).await;
    config.producer.limit = RunLimit::Batches(100);
    other.run_until_more_than(4, config.clone()).await;
    let made = other.payloads().await.len();
    assert!(made < 20, "{made} batches are not inside of the hand-over");
    config.producer.limit = RunLimit::Batches(made as u64);
    let outcome = other.run(config).await.unwrap();
    assert!(matches!(outcome, Outcome::Finished { .. }));
    assert!(other.payloads().await[..5] == whole);
}

/// How often each token of each document is learned; the first of each piece is only looked at.
async fn learned(world: &World) -> BTreeMap<(u32, u64, u64), u32> {
    let mut all = BTreeMap::new();
    for piece in world.sources().await.iter().flat_map(|of| &of.pieces) {
        for n in 1..piece.items {
            let token = (piece.file, piece.unit, piece.skip + n);
            *all.entry(token).or_default() += 1;
        }
    }
    all
}

/// A window of followed input ends when nothing comes; what was committed stays through kills, also where a stage unmade the
/// rest of such a window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_inside_a_window_that_lingered_stays_as_it_was_through_kills() {
    let shapes = [("packed", 1, 50, 7), ("bins", 1, 60, BINS)];
    for seed in seeds(2, 12) {
        let world = World::new();
        let (corpus, files, folder) = scene(&world, seed);
        let mut config = with_stages(balanced(following(&folder)), &shapes);
        config.commit.max_batches = 1 + seed as usize % 2;
        config.packing.balanced.window = 50;
        config.packing.balanced.linger = Period(Duration::from_millis(20));
        world.open_producer(config.clone()).await;
        let mut before: Vec<_> = Vec::new();
        for (n, file) in (0..).zip(&files) {
            come(file, &folder);
            let run = world.crash(config.clone(), seed << 8 | n, n);
            let _ = tokio::time::timeout(Duration::from_millis(80), run).await;
            let (task, stop) = world.spawn(config.clone());
            world.wait_for_batches(before.len() + 1).await;
            stop.cancel();
            task.await.unwrap().unwrap();
            match n {
                1 => drop(set(&world, &config, "packed", Err(1)).await),
                3 => drop(set(&world, &config, "bins", Err(1)).await),
                _ => {}
            }
            let now = world.payloads().await;
            assert!(now[..before.len()] == before[..], "seed {seed}");
            before = now;
        }
        let lines = corpus
            .lines
            .iter()
            .map(|line| tokens(line).len() as u64 - 1);
        // A batch that is never full waits for more.
        let wanted = lines.sum::<u64>() - 2 * 60;
        let (task, stop) = world.spawn(config);
        let all = async {
            while (learned(&world).await.len() as u64) < wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(2), all)
            .await
            .unwrap();
        stop.cancel();
        task.await.unwrap().unwrap();
        let twice = learned(&world)
            .await
            .into_iter()
            .find(|(_, count)| *count > 1);
        assert_eq!(twice, None, "seed {seed}");
        assert!(
            world.payloads().await[..before.len()] == before[..],
            "seed {seed}"
        );
    }
}
