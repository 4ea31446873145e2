//! The tokenizer's file is stored beside the stream, once, and a producer works without that too.

use batchweave_core::ids::Hash;
use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_producer::Outcome;
use batchweave_producer::config::{PackingMode, ProducerConfig, TokenizerKind};
use batchweave_store::Store;
use bytes::Bytes;

use crate::support::World;

/// One token per word of the corpus, and an end token.
const FILE: &str = r#"{
    "version": "1.0",
    "added_tokens": [{"id": 9, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"one": 0, "two": 1, "<unk>": 2}, "unk_token": "<unk>"}
}"#;

fn config(world: &World) -> ProducerConfig {
    let folder = world.folder.path();
    let (corpus, file) = (folder.join("c.jsonl"), folder.join("tokenizer.json"));
    std::fs::write(&corpus, "{\"text\": \"one two one\"}\n".repeat(200)).unwrap();
    std::fs::write(&file, FILE).unwrap();
    let mut config = World::config(&[corpus.display().to_string()], "a");
    config.tokenizer.kind = TokenizerKind::File;
    config.tokenizer.path = file.display().to_string();
    config
}

async fn identity(world: &World) -> StreamConfig {
    let bytes = world.store.get(keys::STREAM, 1 << 20).await.unwrap();
    StreamConfig::from_json(&bytes, keys::STREAM).unwrap()
}

fn stored(world: &World) -> Vec<String> {
    let mut keys = world.store.keys();
    keys.retain(|key| key.starts_with("tokenizers/"));
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tokenizer_s_file_is_kept_with_every_form_of_slices() {
    for mode in [PackingMode::Concat, PackingMode::BestFit] {
        let world = World::new();
        let mut config = config(&world);
        config.packing.mode = mode;
        let outcome = world.run(config.clone()).await.unwrap();
        assert!(matches!(outcome, Outcome::Finished { batches } if batches > 0));
        let id = identity(&world).await.tokenizer;
        let key = keys::tokenizer(&id.fingerprint);
        assert_eq!(stored(&world), [key.as_str()]);
        let bytes = world.store.get(&key, 1 << 20).await.unwrap();
        assert_eq!(bytes, FILE.as_bytes());
        id.check_file(&bytes, &key).unwrap();
        let own = Hash::sha256(FILE.as_bytes());
        assert_eq!(id.fingerprint == own, mode == PackingMode::Concat);
        // A restart finds it.
        world.run(config).await.unwrap();
        assert_eq!(stored(&world).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vocabulary_of_the_programs_needs_no_file() {
    let world = World::new();
    let mut config = config(&world);
    config.tokenizer.kind = TokenizerKind::Bytes;
    world.run(config).await.unwrap();
    assert!(stored(&world).is_empty());
    assert!(identity(&world).await.tokenizer.is_builtin());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_bytes_in_its_place_stop_no_producer() {
    let world = World::new();
    let config = config(&world);
    let key = keys::tokenizer(&Hash::sha256(FILE.as_bytes()));
    let mut first = config.clone();
    first.stream.producers = vec!["a".into(), "b".into()];
    world.run(first.clone()).await.unwrap();
    world.store.overwrite(&key, Bytes::from_static(b"{}"));
    first.producer.name = "b".into();
    let outcome = world.run(first).await.unwrap();
    assert!(matches!(outcome, Outcome::Finished { batches } if batches > 0));
    let there = world.store.get(&key, 1 << 20).await.unwrap();
    assert_eq!(there, &b"{}"[..], "no error path overwrites or deletes");
}
