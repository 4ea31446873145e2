//! Input that grows: every file is read once, in the order of arrival, through stops and crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchweave_daemon::Exit;
use batchweave_daemon::config::ByteSize;
use batchweave_producer::config::{NamedSource, ProducerConfig, ShuffleConfig};
use batchweave_producer::sources::Format;
use batchweave_producer::{Outcome, RunError};

use crate::order::documents;
use crate::support::{Corpus, World};

pub(crate) fn following(folder: &Path) -> ProducerConfig {
    let mut config = World::config(&[folder.display().to_string()], "a");
    config.source.follow = true;
    config.source.follow_every.0 = Duration::from_millis(5);
    config.source.settled_age.0 = Duration::ZERO;
    config
}

/// A corpus in files that have not arrived yet, and their folder.
pub(crate) fn scene(world: &World, seed: u64) -> (Corpus, Vec<PathBuf>, PathBuf) {
    let corpus = Corpus::new(seed, 240);
    let files = corpus
        .write(world, 6)
        .into_iter()
        .map(PathBuf::from)
        .collect();
    let folder = world.folder.path().join("coming");
    std::fs::create_dir(&folder).unwrap();
    (corpus, files, folder)
}

pub(crate) fn come(file: &Path, folder: &Path) -> PathBuf {
    let to = folder.join(file.file_name().unwrap());
    std::fs::rename(file, &to).unwrap();
    to
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_come_later_are_taken_once_in_order_through_stops_and_crashes() {
    for seed in 0..4 {
        let world = World::new();
        let (corpus, files, folder) = scene(&world, seed);
        let expected = corpus.expected(1);
        let mut done = Vec::new();
        for (n, file) in files.iter().enumerate() {
            done.push(come(file, &folder));
            // Files that were read to their ends are no longer needed.
            if n == 4 {
                std::fs::remove_file(&done[0]).unwrap();
            }
            // Some runs die at an instant that the seed draws, or are dropped a little later.
            if (seed + n as u64).is_multiple_of(2) {
                let run = world.crash(following(&folder), seed << 8 | n as u64, n as u64);
                let _ = tokio::time::timeout(Duration::from_millis(80), run).await;
            }
            let (task, stop) = world.spawn(following(&folder));
            let come = &corpus.lines[..corpus.lines.len() * (n + 1) / files.len()];
            world
                .wait_for_batches(Corpus::expected_of_lines(come).len())
                .await;
            stop.cancel();
            assert!(matches!(
                task.await.unwrap().unwrap(),
                Outcome::Stopped { .. }
            ));
        }
        assert!(world.batches().await == expected, "seed {seed}");
        assert!(!world.ended().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_vanishes_before_it_was_read_is_refused_by_name() {
    let world = World::new();
    let (_, files, folder) = scene(&world, 9);
    come(&files[0], &folder);
    let second = come(&files[1], &folder);
    let (task, stop) = world.spawn(following(&folder));
    world.wait_for_batches(2).await;
    stop.cancel();
    task.await.unwrap().unwrap();
    std::fs::remove_file(&second).unwrap();
    let why = world.run(following(&folder)).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    assert!(why.to_string().contains("has vanished"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_growing_list_is_stored_by_what_is_new_and_reclaimed_behind_its_cursor() {
    let world = World::new();
    let corpus = Corpus::new(5, 400);
    let files: Vec<PathBuf> = corpus
        .write(&world, 40)
        .into_iter()
        .map(PathBuf::from)
        .collect();
    let folder = world.folder.path().join("coming");
    std::fs::create_dir(&folder).unwrap();
    let mut running = world.spawn(following(&folder));
    let (mut stored, mut deleted) = (BTreeSet::new(), 0);
    for (n, file) in files[..39].iter().enumerate() {
        come(file, &folder);
        let come = &corpus.lines[..corpus.lines.len() * (n + 1) / files.len()];
        world
            .wait_for_batches(Corpus::expected_of_lines(come).len())
            .await;
        stored.extend(world.inputs());
        // Some passes run beside a producer that extends its list, and some lists are continued by another instance.
        if n % 8 == 5 {
            deleted += world.reclaim_inputs().await;
        }
        if n % 10 == 9 {
            let taken_over = world.spawn(following(&folder));
            let before = std::mem::replace(&mut running, taken_over);
            before.1.cancel();
            let ended = before.0.await.unwrap();
            assert!(matches!(
                ended,
                Ok(Outcome::Stopped { .. }) | Err(RunError::Fenced { .. })
            ));
        }
    }
    running.1.cancel();
    running.0.await.unwrap().unwrap();
    deleted += world.reclaim_inputs().await;
    let (left, bytes) = (world.inputs(), world.inputs_bytes().await);
    assert!(
        deleted > 0 && left.len() < 20,
        "{deleted} deleted, {} left",
        left.len()
    );
    assert!(bytes < files.len() as u64 * 400, "{bytes} bytes");
    assert!(stored.len() > left.len());
    // The links that are left are all that the next instance needs.
    let (task, stop) = world.spawn(following(&folder));
    come(&files[39], &folder);
    world.wait_for_batches(corpus.expected(1).len()).await;
    stop.cancel();
    task.await.unwrap().unwrap();
    assert!(world.batches().await == corpus.expected(1));
}

/// A source that stays and one that grows, in equal shares.
fn two_sources(world: &World, folder: &Path, name: &str) -> ProducerConfig {
    let stays = world.folder.path().join("stays.jsonl");
    std::fs::write(&stays, Corpus::new(77, 50).lines.join("\n")).unwrap();
    let mut config = World::config(&[], name);
    config.source.follow_every.0 = Duration::from_millis(5);
    config.source.settled_age.0 = Duration::ZERO;
    let source = |name: &str, path: &Path| NamedSource {
        name: name.to_owned(),
        paths: vec![path.display().to_string()],
        format: Format::Jsonl,
        field: "text".to_owned(),
        column: "text".to_owned(),
        weight: 1.0,
        epochs: 1,
        follow: false,
        inbox: false,
        shuffle: Some(ShuffleConfig {
            seed: 1,
            window: ByteSize(4000),
        }),
    };
    config.sources = vec![source("stays", &stays), source("coming", folder)];
    config.sources[0].epochs = 0;
    config.sources[1].follow = true;
    config
}

/// Returns the documents of the growing source, by file and place, with their numbers of items by growth.
async fn coming(world: &World) -> BTreeMap<(u32, u64), BTreeMap<u64, u64>> {
    let mut all: BTreeMap<_, BTreeMap<u64, u64>> = BTreeMap::new();
    for ((pass, file, unit), items) in documents(world).await {
        if file > 0 {
            all.entry((file, unit)).or_default().insert(pass, items);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_several_grows_through_stops_and_crashes() {
    for seed in 0..4 {
        let world = World::new();
        let (corpus, files, folder) = scene(&world, seed);
        let config = || two_sources(&world, &folder, "a");
        for (n, file) in files.iter().enumerate() {
            come(file, &folder);
            if (seed + n as u64).is_multiple_of(2) {
                let run = world.crash(config(), seed << 8 | n as u64, n as u64);
                let _ = tokio::time::timeout(Duration::from_millis(80), run).await;
            }
            let (task, stop) = world.spawn(config());
            // The last ones may wait for the rest of their batch.
            let here = corpus.lines.len() * (n + 1) / files.len() - 3;
            let seen = async {
                while coming(&world).await.len() < here {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), seen)
                .await
                .unwrap();
            stop.cancel();
            let stopped = task.await.unwrap().unwrap();
            assert!(matches!(stopped, Outcome::Stopped { .. }));
            // A file that is read to its end may vanish.
            if n == 3 {
                std::fs::remove_file(folder.join("0.jsonl")).unwrap();
            }
        }
        let given = coming(&world).await;
        let twice = given.values().find(|growths| growths.len() > 1);
        assert_eq!(twice, None, "seed {seed}");
        let tokens: u64 = given.values().flat_map(BTreeMap::values).sum();
        let all: usize = corpus
            .lines
            .iter()
            .map(|line| text_of(line).len() + 1)
            .sum();
        // A document whose first token two rows share counts one more.
        assert!(tokens.abs_diff(all as u64) < 600, "{tokens} of {all}");
    }
}

fn text_of(line: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(line).unwrap();
    json["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_share_the_files_of_a_source_that_grows() {
    let world = World::new();
    let (corpus, files, folder) = scene(&world, 3);
    let config = |index: u32| {
        let mut config = two_sources(&world, &folder, ["a", "b"][index as usize]);
        config.stream.producers = vec!["a".to_owned(), "b".to_owned()];
        (config.producer.index, config.producer.of) = (index, 2);
        config
    };
    let running = [0, 1].map(|index| world.spawn(config(index)));
    for file in &files {
        come(file, &folder);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = async {
        while documents(&world).await.len() < corpus.lines.len() - 8 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), seen)
        .await
        .unwrap();
    for (task, stop) in running {
        stop.cancel();
        task.await.unwrap().unwrap();
    }
}
