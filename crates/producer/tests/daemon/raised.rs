//! A restart gives a source more passes while others are read: each document of each pass comes once.

use batchweave_producer::config::{PackingMode, ProducerConfig};

use crate::order::{documents, three};
use crate::shuffled_rows::shuffled;
use crate::support::{World, seeds};

fn packed(world: &World) -> ProducerConfig {
    let mut config = three(world);
    config.packing.mode = PackingMode::BestFit;
    config.packing.look_ahead = 200;
    config.packing.object_bytes.0 = 1;
    config.sources[0].shuffle = None;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_passes_lose_and_double_no_document() {
    raised(packed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_passes_lose_and_double_no_document_of_shuffled_rows() {
    raised(|world| shuffled(packed(world), PackingMode::BestFit)).await;
}

async fn raised(packed: fn(&World) -> ProducerConfig) {
    let whole = World::new();
    let mut config = packed(&whole);
    config.sources[1].epochs = 3;
    whole.run(config).await.unwrap();
    let expected = documents(&whole).await;
    let mut raised = 0;
    for seed in seeds(3, 12) {
        let world = World::new();
        let mut config = packed(&world);
        config.sources[1].epochs = 1;
        let mut over = false;
        for run in 0..=seed {
            over = over || world.crash(config.clone(), seed, run).await;
        }
        if over {
            continue;
        }
        for run in 0..500 {
            config.sources[1].epochs = if run == 0 { 2 } else { 3 };
            if world.crash(config.clone(), seed + 100, run).await {
                break;
            }
        }
        if world.ended().await {
            raised += 1;
            assert!(documents(&world).await == expected, "seed {seed}");
        }
    }
    assert!(raised > 0, "{raised} runs were interrupted");
}
