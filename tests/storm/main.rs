//! Many real producers at once over `dev-s3`: killed at random, and compared with the simulator; and whole
//! jobs with all that is killed in them.
//! Build the programs first (`cargo build --release --workspace`).
#![forbid(unsafe_code)]
// A test that can't go on says so by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agreement;
mod corpus;
mod damage;
mod kills;
mod late;
mod proof;
mod real;
mod whole;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchweave_dev_s3::{Options, Server};
use batchweave_store::{AccessKeys, OpenOptions, Store};

/// The stream of every run.
const URL: &str = "s3://batchweave/stream";

/// Each of these tests wants the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server whose puts of records are noted.
async fn start_server(options: Options) -> Server {
    let journal = Some("stream/log/".to_owned());
    Server::start(Options { journal, ..options }).await.unwrap()
}

/// One client for all who ask.
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
