//! Sources that join a producer which began with `[source]`: the first stays in the order of its files, and each document
//! is in the stream once.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_daemon::Exit;
use batchweave_producer::Outcome;
use batchweave_producer::config::{PackingMode, ProducerConfig};

use crate::mixtures::set;
use crate::order::{documents, lines, packed, source, write};
use crate::support::{World, seeds};

/// Two files in the order of `[source]`.
fn first(world: &World) -> ProducerConfig {
    let paths = vec![
        write(world, "a.jsonl", lines(1, 600).as_bytes()),
        write(world, "b.jsonl.gz", &packed(&lines(2, 500))),
    ];
    let mut config = World::config(&paths, "a");
    (config.stream.slices, config.stream.rows_per_slice) = (2, 2);
    config.stream.seq_len = 512;
    "body".clone_into(&mut config.source.field);
    config.source.epochs = 2;
    config
}

/// The same with a source that joins.
fn joined(world: &World, config: &ProducerConfig) -> ProducerConfig {
    let mut config = config.clone();
    let mut web = source("web", std::mem::take(&mut config.source.paths), 1.0, None);
    (web.format, web.epochs) = (config.source.format, config.source.epochs);
    web.follow = std::mem::take(&mut config.source.follow);
    "text".clone_into(&mut config.source.field);
    config.source.epochs = 1;
    let code = write(world, "code.jsonl", lines(3, 400).as_bytes());
    config.sources = vec![web, source("code", vec![code], 0.0, Some(100_000))];
    config
}

/// The documents that [`documents`] names: by line in the order of the files, by byte elsewhere.
fn all(passes: u64) -> BTreeMap<(u64, u32, u64), u64> {
    let mut expected = BTreeMap::new();
    let mut add = |pass, file, text: &str, by_byte: bool| {
        let mut begin = 0;
        for (line, text) in text.lines().enumerate() {
            let unit = if by_byte { begin } else { line };
            expected.insert((pass, file, unit as u64), text.len() as u64 - 11 + 1);
            begin += text.len() + 1;
        }
    };
    for pass in 0..passes {
        add(pass, 0, &lines(1, 600), false);
        add(pass, 1, &lines(2, 500), false);
    }
    add(0, 2, &lines(3, 400), true);
    expected
}

/// Runs `config` to its end with a crash after a number of batches that the seed draws, and lets `code` join.
async fn join(world: &World, config: ProducerConfig, seed: u64) {
    let mut kills = 0;
    while world.payloads().await.len() < 20 {
        assert!(!world.crash(config.clone(), seed, kills).await);
        kills += 1;
    }
    let several = joined(world, &config);
    let before = world.payloads().await;
    while !world.crash(several.clone(), 77 + seed, kills).await {
        kills += 1;
        if world.payloads().await.len() > before.len() + 5 && !is_changed(world).await {
            set(world, &[("web", 0.4), ("code", 0.6)], Err(seed % 3)).await;
        }
    }
    assert!(is_changed(world).await, "the source never had a share");
    assert_eq!(before, world.payloads().await[..before.len()]);
}

async fn is_changed(world: &World) -> bool {
    world.open_log().await.manifest().mixture().id > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_joins_under_kills() {
    for seed in seeds(2, 6) {
        let world = World::new();
        let mut config = first(&world);
        config.packing.mode = PackingMode::BestFit;
        config.packing.look_ahead = 20;
        config.packing.last_batch = batchweave_producer::config::LastBatch::Pad;
        join(&world, config, seed).await;
        let (found, expected) = (documents(&world).await, all(2));
        assert_eq!(found.len(), expected.len(), "seed {seed}");
        assert!(found == expected, "seed {seed}");
        assert_file_order(&world).await;
    }
}

/// The documents of the first source come in the order of its files, before and behind the join.
async fn assert_file_order(world: &World) {
    let mut last = (0, 0, 0);
    for sources in world.sources().await {
        for piece in sources.pieces.iter().filter(|piece| piece.file < 2) {
            let at = (piece.pass, piece.file, piece.unit);
            // Of several documents that wait for rows, the one that fits best comes first.
            let back = last.2 > at.2 + 200 && last.0 == at.0 && last.1 == at.1;
            assert!(!back, "{at:?} after {last:?}");
            last = last.max(at);
        }
    }
}

/// Files that come after the join are read at the end of the first source, which stays in the order of its files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_joins_one_that_is_followed() {
    let world = World::new();
    let folder = world.folder.path().join("coming");
    std::fs::create_dir(&folder).unwrap();
    let mut config = first(&world);
    // Whole documents: rows of `concat` share tokens with the rows behind them.
    (config.packing.mode, config.packing.look_ahead) = (PackingMode::BestFit, 20);
    let files = std::mem::replace(&mut config.source.paths, vec![folder.display().to_string()]);
    let come = |file: &String| {
        let name = file.rsplit_once('/').unwrap().1;
        std::fs::rename(file, folder.join(name)).unwrap();
    };
    (config.source.follow, config.source.epochs) = (true, 1);
    config.source.follow_every.0 = Duration::from_millis(5);
    config.source.settled_age.0 = Duration::ZERO;
    come(&files[0]);
    let mut several = joined(&world, &config);
    // Both runs stop within the first file.
    for (config, batches) in [(&mut config, 20), (&mut several, 40)] {
        config.ahead.max_steps = batches;
        let (running, stop) = world.spawn(config.clone());
        world.wait_for_batches(batches as usize).await;
        stop.cancel();
        running.await.unwrap().unwrap();
    }
    set(&world, &[("web", 0.5), ("code", 0.5)], Err(0)).await;
    come(&files[1]);
    // The list is that of the file system: `code` joined before `b`.
    let expected: BTreeMap<_, _> = all(1)
        .into_iter()
        .map(|((pass, file, unit), tokens)| ((pass, [0, 2, 1][file as usize], unit), tokens))
        .collect();
    several.ahead.max_steps = 0;
    let (running, stop) = world.spawn(several);
    // The others wait for documents to share a row or a batch with.
    let waiting = 60;
    let seen = async {
        while documents(&world).await.len() + waiting < expected.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_mins(2), seen).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    seen.expect("no progress");
    for (place, tokens) in documents(&world).await {
        assert_eq!(Some(&tokens), expected.get(&place), "{place:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_source_is_the_same_when_it_has_a_name() {
    let run = async |named: bool| {
        let world = World::new();
        let config = first(&world);
        let mut renamed = joined(&world, &config);
        renamed.sources.truncate(1);
        for n in [60, 90, 120] {
            let mut config = config.clone();
            config.shutdown.deadline.0 = Duration::from_millis(50);
            world.run_until_silent(config, n).await.unwrap();
        }
        let outcome = world.run(if named { renamed } else { config }).await;
        assert!(matches!(outcome.unwrap(), Outcome::Finished { .. }));
        world.payloads().await
    };
    let (plain, named) = (run(false).await, run(true).await);
    assert_eq!(plain.len(), named.len());
    assert!(plain == named);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_first_source_and_a_weight_at_once_are_refused() {
    let world = World::new();
    let config = first(&world);
    world.run_until_more_than(0, config.clone()).await;
    let refused = async |change: fn(&mut ProducerConfig), part: &str| {
        let mut config = joined(&world, &config);
        change(&mut config);
        let why = world.run(config).await.unwrap_err();
        assert!(matches!(why.exit(), Exit::Config | Exit::BadInput), "{why}");
        assert!(why.to_string().contains(part), "{why}");
    };
    refused(
        |config| config.sources[1].weight = 0.5,
        "\"code\" is new, and begins with weight = 0",
    )
    .await;
    let swapped = "the first one, here \"code\", is that of [source]";
    refused(|config| config.sources.swap(0, 1), swapped).await;
    refused(
        |config| config.sources[0].field = "other".to_owned(),
        "sources: was ",
    )
    .await;
    let shuffle = |config: &mut ProducerConfig| {
        config.sources[0].shuffle = config.sources[1].shuffle;
    };
    refused(shuffle, "the first one, here \"web\", is that of [source]").await;
    let missing = |config: &mut ProducerConfig| {
        config.sources[0].paths.pop();
    };
    refused(missing, "b.jsonl.gz: has vanished").await;
}
