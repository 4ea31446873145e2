//! Many real producers at once over `dev-s3`: killed at random, and compared with the simulator; and
//! whole jobs whose programs are killed. Build the programs first (`cargo build --release
//! --workspace`).
#![forbid(unsafe_code)]
// A test that cannot continue panics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adversary;
mod agreement;
mod corpus;
mod damage;
mod forger;
mod images;
mod job;
mod kills;
mod late;
mod mixtures;
mod ordered;
mod proof;
mod real;
mod records;
mod stages;
mod whole;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchweave_dev_s3::{Options, Server};
use batchweave_store::{AccessKeys, OpenOptions, Store};

/// The URL of the stream in every run.
const URL: &str = "s3://batchweave/stream";

/// A lock: each of these tests needs the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a server that keeps a journal of the puts of records.
async fn start_server(options: Options) -> Server {
    let journal = Some("stream/log/".to_owned());
    Server::start(Options { journal, ..options }).await.unwrap()
}

/// Returns the one client that all tests share.
async fn open_store(endpoint: String) -> Arc<dyn Store> {
    let options = Options::default();
    let keys = AccessKeys {
        id: options.access_key,
        secret: options.secret_key,
    };
    let options = OpenOptions {
        endpoint: Some(endpoint),
        region: Some("us-east-1".to_owned()),
        keys: Some(keys),
        ..OpenOptions::default()
    };
    batchweave_store::open(URL, &options).await.unwrap()
}
