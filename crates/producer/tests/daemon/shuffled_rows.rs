//! Rows in shuffled order: the same batches after any kill, and each document once, in every mode and over changes of the
//! mixture.

use std::time::Duration;

use batchweave_daemon::config::Period;
use batchweave_producer::config::{LastBatch, PackingMode, ProducerConfig, ShuffleRowsConfig};

use crate::follow::{come, following, scene};
use crate::order::{documents, three};
use crate::support::{Corpus, World, seeds};

/// Windows of five batches of 64 tokens.
pub(crate) fn shuffled(mut config: ProducerConfig, mode: PackingMode) -> ProducerConfig {
    config.packing.mode = mode;
    config.packing.look_ahead = 50;
    config.packing.last_batch = LastBatch::Pad;
    config.packing.shuffle_rows = Some(ShuffleRowsConfig {
        tokens: 5 * 64,
        seed: 3,
        ..ShuffleRowsConfig::default()
    });
    config
}

async fn is_the_same_after_kills(mode: PackingMode) {
    let whole = World::new();
    whole.run(shuffled(three(&whole), mode)).await.unwrap();
    let expected = whole.payloads().await;
    let plain = World::new();
    let mut config = shuffled(three(&plain), mode);
    config.packing.shuffle_rows = None;
    plain.run(config).await.unwrap();
    let (all, found) = (documents(&plain).await, documents(&whole).await);
    assert!(all.keys().eq(found.keys()), "the same documents");
    // The rows of a sequence repeat tokens at borders of documents.
    assert!(all == found || mode == PackingMode::Concat);
    assert_ne!(plain.payloads().await, expected);
    for seed in seeds(2, 8) {
        let world = World::new();
        let mut kills = 0;
        let shuffled = shuffled(three(&world), mode);
        let config = || {
            let mut config = shuffled.clone();
            config.commit.max_batches = 1 + seed as usize % 3;
            config
        };
        while !world.crash(config(), 0x0f5 + seed, kills).await {
            kills += 1;
        }
        assert!(kills > 1, "{kills} kills");
        assert!(world.payloads().await == expected, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shuffled_rows_of_a_sequence_do_not_depend_on_kills() {
    is_the_same_after_kills(PackingMode::Concat).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shuffled_rows_of_whole_documents_do_not_depend_on_kills() {
    is_the_same_after_kills(PackingMode::BestFit).await;
}

/// A window of followed input ends when nothing has come for a time; what was committed of it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_window_lingers_and_stays_as_it_was_through_kills() {
    for seed in seeds(2, 12) {
        let world = World::new();
        let (corpus, files, folder) = scene(&world, seed);
        let config = || {
            let mut config = following(&folder);
            config.commit.max_batches = 1 + seed as usize % 2;
            config.packing.shuffle_rows = Some(ShuffleRowsConfig {
                linger: Period(Duration::from_millis(20)),
                ..ShuffleRowsConfig::default()
            });
            config
        };
        let mut before: Vec<_> = Vec::new();
        for (n, file) in (0..).zip(&files) {
            come(file, &folder);
            let run = world.crash(config(), seed << 8 | n, n);
            let _ = tokio::time::timeout(Duration::from_millis(80), run).await;
            let (task, stop) = world.spawn(config());
            let come = &corpus.lines[..corpus.lines.len() * (n as usize + 1) / files.len()];
            let whole = Corpus::expected_of_lines(come).len();
            world.wait_for_batches(whole).await;
            stop.cancel();
            task.await.unwrap().unwrap();
            let now = world.batches().await;
            assert!(now[..before.len()] == before[..], "seed {seed}");
            before = now;
        }
        let mut found = before.concat();
        let mut expected = corpus.expected(1).concat();
        assert_ne!(found, expected, "the order is another one");
        found.sort();
        expected.sort();
        assert!(found == expected, "seed {seed}");
    }
}
