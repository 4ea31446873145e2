//! Every mode of packing, interrupted anywhere: the same payloads as in an undisturbed run.

use std::fmt::Write as _;

use batchweave_core::tgb::{Dtype, Layout};
use batchweave_daemon::Exit;
use batchweave_producer::Outcome;
use batchweave_producer::config::{LastBatch, OnBadDocument, PackingMode, ProducerConfig};
use batchweave_producer::packing::{ArraySpec, Extra};

use crate::support::{Corpus, Random, World};

fn best_fit(paths: &[String]) -> ProducerConfig {
    let mut config = World::config(paths, "a");
    config.packing.mode = PackingMode::BestFit;
    config.packing.look_ahead = 13;
    config.packing.fields = Extra::ALL.to_vec();
    config.packing.last_batch = LastBatch::Pad;
    config.source.epochs = 2;
    config
}

fn opaque(paths: &[String]) -> ProducerConfig {
    let spec = |name: &str, dtype, shape: &[u64]| ArraySpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        from: String::new(),
        image: None,
        path: false,
        shortest: None,
        base64: false,
    };
    let mut config = World::config(paths, "a");
    config.packing.mode = PackingMode::Opaque;
    config.packing.arrays = vec![
        spec("image", Dtype::U8, &[]),
        spec("action", Dtype::F32, &[2]),
    ];
    config.packing.last_batch = LastBatch::Pad;
    config.stream.seq_len = 1;
    config.source.on_bad_document = OnBadDocument::Skip;
    config
}

/// Samples of a robot: pictures of any size and any number of actions.
fn robot(world: &World, samples: usize) -> Vec<String> {
    let mut random = Random(7);
    let mut text = String::new();
    for n in 0..samples {
        let image: Vec<u64> = (0..random.next() % 70)
            .map(|_| random.next() % 256)
            .collect();
        let actions = random.next() % 5;
        let action: Vec<[f64; 2]> = (0..actions).map(|k| [n as f64, k as f64 / 2.]).collect();
        let action = if n % 37 == 5 {
            "\"bad\"".to_owned()
        } else {
            serde_json::to_string(&action).unwrap()
        };
        writeln!(text, "{{\"image\":{image:?},\"action\":{action}}}").unwrap();
    }
    let path = world.folder.path().join("robot.jsonl");
    std::fs::write(&path, text).unwrap();
    vec![path.display().to_string()]
}

/// Stopped and killed at instants that the seed draws, with other sizes of objects and numbers of
/// threads each time.
async fn disturbed(world: &World, config: &ProducerConfig, seed: u64) -> u64 {
    for run in 0..500 {
        let mut config = config.clone();
        config.packing.object_bytes.0 = [1, 3000, 1 << 20][(run % 3) as usize];
        config.tokenizer.threads = 1 + (run % 3) as usize;
        let over = if run % 2 == 0 {
            world.crash(config, seed, run).await
        } else {
            let outcome = world.run_until(config, seed << 16 | run).await.unwrap();
            matches!(outcome, Outcome::Finished { .. })
        };
        if over {
            return run;
        }
    }
    panic!("seed {seed}: no progress");
}

/// Runs what `make` configures without and with interruptions, and compares payloads and provenance.
pub(crate) async fn the_same_however_cut(make: fn(&World) -> ProducerConfig) {
    let calm = World::new();
    let outcome = calm.run(make(&calm)).await.unwrap();
    let expected = calm.payloads().await;
    let sources = calm.sources().await;
    assert_eq!(sources.len(), expected.len());
    assert_eq!(
        outcome,
        Outcome::Finished {
            batches: expected.len() as u64
        }
    );
    assert!(expected.len() > 20);
    for seed in 0..4 {
        let world = World::new();
        let cuts = disturbed(&world, &make(&world), seed).await;
        let found = world.payloads().await;
        assert!(found == expected, "seed {seed}, {cuts} cuts");
        assert!(world.sources().await == sources, "seed {seed}, {cuts} cuts");
        assert!(cuts > 1, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn best_fit_is_the_same_however_it_is_cut() {
    the_same_however_cut(|world| best_fit(&Corpus::new(1, 200).write(world, 3))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opaque_is_the_same_however_it_is_cut() {
    the_same_however_cut(|world| opaque(&robot(world, 300))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_come_out_as_they_went_in() {
    let world = World::new();
    let paths = robot(&world, 50);
    world.run(opaque(&paths)).await.unwrap();
    let lines = std::fs::read_to_string(&paths[0]).unwrap();
    let mut expected = Vec::new();
    for line in lines.lines().filter(|line| !line.contains("bad")) {
        let sample: serde_json::Value = serde_json::from_str(line).unwrap();
        let image: Vec<u8> = sample["image"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap() as u8)
            .collect();
        let action = sample["action"].as_array().unwrap().iter();
        let numbers = action.flat_map(|item| item.as_array().unwrap());
        let action = numbers.flat_map(|n| (n.as_f64().unwrap() as f32).to_le_bytes());
        expected.push((image, action.collect::<Vec<u8>>()));
    }
    let mut found = Vec::new();
    for payload in world.payloads().await.into_iter().flatten() {
        let layout = Layout::parse(&payload).unwrap();
        let data = |name: &str| {
            let array = layout.array(name).unwrap();
            payload[array.offset as usize..][..array.bytes as usize].to_vec()
        };
        let borders = |name: &str| -> Vec<usize> {
            let data = data(name);
            let numbers = data
                .chunks_exact(8)
                .map(|b| u64::from_le_bytes(b.try_into().unwrap()));
            numbers.map(|n| n as usize).collect()
        };
        let (images, actions) = (borders("image.offsets"), borders("action.offsets"));
        for n in 0..images.len() - 1 {
            let image = data("image")[images[n]..images[n + 1]].to_vec();
            let action = data("action")[8 * actions[n]..8 * actions[n + 1]].to_vec();
            found.push((image, action));
        }
    }
    assert!(found == expected);
    assert!(found.len() > 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_form_of_slices_is_refused() {
    let world = World::new();
    let paths = Corpus::new(8, 30).write(&world, 1);
    world.run(best_fit(&paths)).await.unwrap();
    let mut other = best_fit(&paths);
    other.packing.fields = vec![Extra::LossMask];
    let why = world.run(other).await.unwrap_err();
    assert_eq!(why.exit(), Exit::StreamRefused);
    for part in [
        "tokenizer: the stream has \"bytes; best_fit, segment_ids, positions, loss_mask,",
        "this configuration \"bytes; best_fit, loss_mask\"",
    ] {
        assert!(why.to_string().contains(part), "{part} in {why}");
    }
    let world = World::new();
    let paths = robot(&world, 30);
    world.run(opaque(&paths)).await.unwrap();
    let mut other = opaque(&paths);
    other.packing.arrays[1].shape = vec![3];
    let why = world.run(other).await.unwrap_err().to_string();
    for part in ["arrays image U8, action F32[2]", "action F32[3]"] {
        assert!(why.contains(part), "{part} in {why}");
    }
}
