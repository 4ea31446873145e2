//! The daemon end to end on a store in memory: the stream holds the documents, and restarts, shares and bad input do
//! not change it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

#[path = "daemon/bad_input.rs"]
mod bad_input;
#[path = "daemon/balanced.rs"]
mod balanced;
#[path = "daemon/follow.rs"]
mod follow;
#[path = "daemon/forks.rs"]
mod forks;
#[path = "daemon/formats.rs"]
mod formats;
#[path = "daemon/inbox.rs"]
mod inbox;
#[path = "daemon/joined.rs"]
mod joined;
#[path = "daemon/lanes.rs"]
mod lanes;
#[path = "daemon/learned.rs"]
mod learned;
#[path = "daemon/mixtures.rs"]
mod mixtures;
#[path = "daemon/modes.rs"]
mod modes;
#[path = "daemon/order.rs"]
mod order;
#[path = "daemon/panics.rs"]
mod panics;
#[path = "daemon/raised.rs"]
mod raised;
#[path = "daemon/shards.rs"]
mod shards;
#[path = "daemon/shuffled_rows.rs"]
mod shuffled_rows;
#[path = "daemon/stage_bins.rs"]
mod stage_bins;
#[path = "daemon/stage_tokens.rs"]
mod stage_tokens;
#[path = "daemon/stages.rs"]
mod stages;
#[path = "daemon/starting.rs"]
mod starting;
mod support;
#[path = "daemon/templates.rs"]
mod templates;
#[path = "daemon/tokenizer_file.rs"]
mod tokenizer_file;

use std::sync::Arc;
use std::time::Duration;

use batchweave_daemon::Exit;
use batchweave_producer::config::{LastBatch, OnBadDocument};
use batchweave_producer::{Outcome, RunError, run_on};
use batchweave_store::Op;
use batchweave_store::testing::faults::{FaultStore, Rates};
use support::{Corpus, World, seeds};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_holds_every_token_once_in_order() {
    let world = World::new();
    let corpus = Corpus::new(1, 300);
    let config = World::config(&corpus.write(&world, 3), "a");
    let outcome = world.run(config).await.unwrap();
    let batches = world.batches().await;
    assert_eq!(
        outcome,
        Outcome::Finished {
            batches: batches.len() as u64
        }
    );
    assert_eq!(batches, corpus.expected(1));
    assert!(world.ended().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_share_the_input() {
    let world = World::new();
    let corpus = Corpus::new(2, 200);
    let paths = corpus.write(&world, 2);
    for index in 0..3 {
        let mut config = World::config(&paths, ["a", "b", "c"][index as usize]);
        config.stream.producers = vec!["a".into(), "b".into(), "c".into()];
        (config.producer.index, config.producer.of) = (index, 3);
        assert!(!world.ended().await);
        world.run(config).await.unwrap();
    }
    assert!(world.ended().await);
    let expected: Vec<_> = (0..3)
        .flat_map(|index| corpus.expected_of(3, index, 2))
        .collect();
    assert_eq!(world.batches().await, expected);
}

/// Stopped at random instants, again and again, with several sizes of objects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_anywhere_changes_nothing() {
    for seed in seeds(3, 20) {
        let world = World::new();
        let corpus = Corpus::new(seed, 400);
        let paths = corpus.write(&world, 4);
        let mut runs = 0;
        loop {
            let mut config = World::config(&paths, "a");
            config.packing.last_batch = LastBatch::Pad;
            config.packing.object_bytes.0 = [1, 700, 1 << 14][(seed % 3) as usize];
            config.source.epochs = 2;
            runs += 1;
            assert!(runs < 2000, "seed {seed}: no progress");
            match world.run_until(config, seed + runs).await.unwrap() {
                Outcome::Finished { .. } => break,
                Outcome::Stopped { .. } => {}
                Outcome::Sealed => panic!("seed {seed}: sealed"),
            }
        }
        assert_eq!(
            world.batches().await,
            corpus.expected_padded(2),
            "seed {seed}, {runs} runs"
        );
    }
}

/// Dropped in the middle, as by kill -9, and run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_anywhere_changes_nothing() {
    for seed in seeds(4, 20) {
        let world = World::new();
        let corpus = Corpus::new(seed, 300);
        let paths = corpus.write(&world, 2);
        let mut crashes = 0;
        while !world.crash(World::config(&paths, "a"), seed, crashes).await {
            crashes += 1;
            assert!(crashes < 500, "seed {seed}: no progress");
        }
        assert!(crashes > 0, "seed {seed}: never crashed");
        assert_eq!(
            world.batches().await,
            corpus.expected(1),
            "seed {seed}, {crashes} crashes"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_producer_stays_finished_without_its_input() {
    let world = World::new();
    let paths = Corpus::new(3, 50).write(&world, 1);
    let first = world.run(World::config(&paths, "a")).await.unwrap();
    std::fs::remove_file(&paths[0]).unwrap();
    assert_eq!(world.run(World::config(&paths, "a")).await.unwrap(), first);
}

/// Writes fail and answers are lost: at worst the daemon gives up and is started again. (The S3 store retries
/// reads.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rough_store_changes_nothing() {
    for seed in seeds(2, 8) {
        let world = World::new();
        let corpus = Corpus::new(seed, 60);
        let paths = corpus.write(&world, 2);
        let rates = Rates {
            delay_max: Duration::from_millis(2),
            ..Rates::rough()
        };
        let writes = [(Op::Create, rates), (Op::Upload, rates)];
        let faults = FaultStore::new(world.store.clone(), seed, writes);
        for run in 0.. {
            assert!(run < 200, "seed {seed}: never finished");
            match run_on(
                Arc::new(faults.clone()),
                World::config(&paths, "a"),
                CancellationToken::new(),
            )
            .await
            {
                Ok(Outcome::Finished { .. }) => break,
                Ok(other) => panic!("seed {seed}: {other:?}"),
                Err(why) => assert_eq!(why.exit(), Exit::StoreUnavailable, "seed {seed}: {why}"),
            }
        }
        assert!(faults.struck() > 0);
        assert_eq!(world.batches().await, corpus.expected(1), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stays_down_ends_the_daemon_after_the_set_time() {
    let world = World::new();
    let paths = Corpus::new(9, 20).write(&world, 1);
    let down = Rates {
        throttled: 1000,
        ..Rates::default()
    };
    let store = FaultStore::new(world.store.clone(), 9, [(Op::Upload, down)]);
    let mut config = World::config(&paths, "a");
    config.upload.give_up_after.0 = Duration::ZERO;
    let why = run_on(Arc::new(store), config, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(why.exit(), Exit::StoreUnavailable);
    assert!(why.to_string().contains("/data/a/1-"), "{why}");
    world.run(World::config(&paths, "a")).await.unwrap();
    assert!(world.ended().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_instance_is_fenced() {
    let world = World::new();
    let corpus = Corpus::new(4, 400);
    let paths = corpus.write(&world, 1);
    let mut endless = World::config(&paths, "a");
    endless.source.epochs = 0;
    let (old, stop_old) = world.spawn(endless.clone());
    world.wait_for_batches(10).await;
    let (new, stop_new) = world.spawn(endless);
    let why = old.await.unwrap().unwrap_err();
    assert_eq!(why.exit(), Exit::Fenced, "{why}");
    let text = why.to_string();
    for part in [
        "fenced: producer a",
        "term 2",
        "nothing is lost",
        "producer.name",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let before = world.batches().await.len();
    world.wait_for_batches(before + 5).await;
    stop_new.cancel();
    stop_old.cancel();
    new.await.unwrap().unwrap();
    let found = world.batches().await;
    assert_eq!(found, corpus.expected_passes(found.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_document_stops_with_its_place_and_nothing_before_it_is_lost() {
    let world = World::new();
    let mut corpus = Corpus::new(5, 300);
    corpus.lines[250] = "{\"text\": 7}".to_owned();
    let paths = corpus.write(&world, 1);
    for _ in 0..2 {
        let why = world.run(World::config(&paths, "a")).await.unwrap_err();
        assert_eq!(why.exit(), Exit::BadInput);
        let text = why.to_string();
        for part in [
            "0.jsonl:251: field \"text\" is a number, not a string",
            "on_bad_document = \"skip\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(
            world.batches().await,
            Corpus::expected_of_lines(&corpus.lines[..250])
        );
    }
    // The advice of the message works, from the current cursor.
    let mut config = World::config(&paths, "a");
    config.source.on_bad_document = OnBadDocument::Skip;
    assert!(matches!(
        world.run(config).await.unwrap(),
        Outcome::Finished { .. }
    ));
    corpus.lines.remove(250);
    assert_eq!(
        world.batches().await,
        Corpus::expected_of_lines(&corpus.lines)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skipped_documents_are_skipped_in_every_run() {
    let world = World::new();
    let mut corpus = Corpus::new(6, 300);
    for (line, bad) in [
        (3, "{"),
        (70, "{\"x\":\"\"}"),
        (71, "{\"text\":\"\"}"),
        (299, "[]"),
    ] {
        corpus.lines[line] = bad.to_owned();
    }
    let paths = corpus.write(&world, 3);
    for run in 0u64.. {
        let mut config = World::config(&paths, "a");
        config.source.on_bad_document = OnBadDocument::Skip;
        if let Outcome::Finished { .. } = world.run_until(config, run).await.unwrap() {
            break;
        }
    }
    let good: Vec<String> = corpus
        .lines
        .iter()
        .filter(|l| l.contains("\"text\":\"w"))
        .cloned()
        .collect();
    assert_eq!(good.len(), 296);
    assert_eq!(world.batches().await, Corpus::expected_of_lines(&good));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_input_or_setting_is_refused_by_name_without_fencing() {
    let world = World::new();
    let corpus = Corpus::new(7, 400);
    let paths = corpus.write(&world, 3);
    let mut endless = World::config(&paths, "a");
    endless.source.epochs = 0;
    let (running, stop) = world.spawn(endless.clone());
    world.wait_for_batches(5).await;

    let mut other = endless.clone();
    (other.source.field, other.producer.of) = ("body".into(), 2);
    let why = world.run(other).await.unwrap_err();
    assert_eq!(why.exit(), Exit::Config);
    for part in [
        "producer.of: was 1, is 2",
        "source.field: was \"text\", is \"body\"",
    ] {
        assert!(why.to_string().contains(part), "{part} in {why}");
    }
    std::fs::write(
        world.folder.path().join("0.jsonl"),
        "{\"text\":\"other\"}\n",
    )
    .unwrap();
    std::fs::rename(
        world.folder.path().join("2.jsonl"),
        world.folder.path().join("3.jsonl"),
    )
    .unwrap();
    let mut other = endless.clone();
    other.source.paths = vec![world.folder.path().display().to_string()];
    let why = world.run(other).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    for part in [
        "0.jsonl: has changed, from",
        "2.jsonl: has vanished",
        "3.jsonl: is new",
        "start a new producer name",
    ] {
        assert!(why.to_string().contains(part), "{part} in {why}");
    }
    stop.cancel();
    let ended = running.await.unwrap();
    assert!(!matches!(ended, Err(RunError::Fenced { .. })), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_streams_parameters_are_listed_in_one_message() {
    let world = World::new();
    let paths = Corpus::new(8, 20).write(&world, 1);
    world.run(World::config(&paths, "a")).await.unwrap();
    let mut config = World::config(&paths, "a");
    (config.stream.slices, config.stream.seq_len) = (16, 99);
    let why = world.run(config).await.unwrap_err();
    assert_eq!(why.exit(), Exit::StreamRefused);
    for part in [
        "slices: the stream has \"2\", this configuration \"16\"",
        "seq_len",
    ] {
        assert!(why.to_string().contains(part), "{part} in {why}");
    }
    let absent = World::new();
    let mut config = World::config(&paths, "a");
    config.stream.create = false;
    let why = absent.run(config).await.unwrap_err();
    assert!(why.to_string().contains("stream.json is missing"), "{why}");
    assert_eq!(why.exit(), Exit::StreamRefused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_without_documents_and_without_end_is_an_error() {
    for (content, on_bad_document) in [
        ("\n\n", OnBadDocument::Fail),
        ("{\n{}\n", OnBadDocument::Skip),
    ] {
        let world = World::new();
        let path = world.folder.path().join("x.jsonl");
        std::fs::write(&path, content).unwrap();
        let mut config = World::config(&[path.display().to_string()], "a");
        (config.source.epochs, config.source.on_bad_document) = (0, on_bad_document);
        let why = world.run(config).await.unwrap_err();
        assert!(
            why.to_string()
                .contains("a whole pass over the input gave no document"),
            "{why}"
        );
    }
}
