//! A start that hangs anywhere ends when a stop is requested; one with a mistyped path leaves no stream.

use std::time::Duration;

use batchweave_daemon::Exit;
use batchweave_producer::config::{PackingMode, ProducerConfig};
use batchweave_producer::{Outcome, run_on};
use batchweave_store::Store;
use tokio_util::sync::CancellationToken;

use crate::support::{Corpus, World};

const UNOPENED: Outcome = Outcome::Stopped { batches: None };

fn fifo(world: &World, name: &str) -> String {
    let path = world.folder.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    path.display().to_string()
}

async fn stopped(world: &World, config: ProducerConfig) -> Outcome {
    let stop = CancellationToken::new();
    stop.cancel();
    let run = run_on(world.store.clone(), config, stop);
    let run = tokio::time::timeout(Duration::from_mins(1), run);
    run.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_takes_effect_at_every_request_of_the_start() {
    for n in 1..=20 {
        let world = World::new();
        let paths = Corpus::new(1, 10).write(&world, 1);
        let run = world.run_until_silent(World::config(&paths, "a"), n);
        let run = tokio::time::timeout(Duration::from_mins(1), run);
        let outcome = run.await.unwrap().unwrap();
        if outcome != UNOPENED {
            assert!(n > 8, "request {n}: {outcome:?}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_stops_no_producer_from_stopping() {
    let world = World::new();
    let paths = Corpus::new(1, 10).write(&world, 1);
    let mut config = World::config(&paths, "a");
    config.packing.mode = PackingMode::Chat;
    config.chat.template = fifo(&world, "chat.jinja");
    assert_eq!(stopped(&world, config).await, UNOPENED);
    let folder = tempfile::tempdir_in(world.folder.path()).unwrap();
    let named = folder.path().file_name().unwrap().to_str().unwrap();
    fifo(&world, &format!("{named}/b.jsonl"));
    let config = World::config(&[folder.path().display().to_string()], "a");
    let why = world.run(config).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    for word in ["b.jsonl", "not a regular file"] {
        assert!(why.to_string().contains(word), "{word} in {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistyped_path_leaves_no_stream_behind() {
    let world = World::new();
    let missing = world.folder.path().join("nowhere.jsonl");
    let config = World::config(&[missing.display().to_string()], "a");
    let why = world.run(config).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput, "{why}");
    let stream = world.store.get("stream.json", u64::MAX).await.unwrap_err();
    assert!(stream.is_not_found(), "{stream}");
}
