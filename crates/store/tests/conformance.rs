//! The conformance suite on every store; one binary, since each that links the SDK costs link time.
//!
//! `BATCHWEAVE_TEST_STORES` adds stores, as `s3://bucket/prefix gs://bucket/prefix az://container/prefix`, with the usual
//! variables of each cloud; `make test-clouds` sets it for emulators.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod clouds;
mod s3;
mod script;

use std::sync::Arc;

use batchweave_store::file::FileStore;
use batchweave_store::memory::MemoryStore;
use batchweave_store::testing::conformance::{self, Effort};
use batchweave_store::{OpenOptions, Patience, Store};

fn effort(rounds: usize) -> Effort {
    let random = rand::random();
    Effort { rounds, random }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    conformance::run(MemoryStore::new(), effort(100)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn file() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path(), false).await.unwrap();
    conformance::run(Arc::new(store), effort(100)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dev_s3() {
    let (server, store) = s3::served(batchweave_dev_s3::Options::default(), "pre/fix").await;
    conformance::run(Arc::clone(&store), effort(100)).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dev_s3_at_the_buckets_root_with_unordered_lists() {
    let options = batchweave_dev_s3::Options {
        unordered_list: true,
        seed: 7,
        ..Default::default()
    };
    let (_server, store) = s3::served(options, "").await;
    conformance::run(store, effort(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stores_named_in_the_environment() {
    let Ok(urls) = std::env::var("BATCHWEAVE_TEST_STORES") else {
        println!("BATCHWEAVE_TEST_STORES is not set: no foreign store was tested");
        return;
    };
    // An emulator beside other tests answers late.
    let loaded = OpenOptions {
        patience: Patience::Loaded,
        ..OpenOptions::default()
    };
    for url in urls.split_whitespace() {
        let store: Arc<dyn Store> = batchweave_store::open(url, &loaded).await.unwrap();
        conformance::run(store, effort(100)).await;
    }
}
