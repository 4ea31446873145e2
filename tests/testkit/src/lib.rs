//! Streams, producers and jobs for tests that read and write a log, and ports for daemons.
//!
//! Only tests depend on this crate: `producer` commits TGBs one record at a time, without a commit task
//! and its policy; `job` opens a job with its attempt and stores marks and progress. A failure is a bug
//! of the test and panics.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod job;
mod ports;
mod producer;

use std::sync::Arc;

use batchweave_log::{Log, LogOptions};
use batchweave_store::Store;

pub use job::TestJob;
pub use ports::free_port;
pub use producer::TestProducer;

/// Opens the log in `store` without writing snapshots; `seed` feeds its random numbers.
pub async fn open_log(store: &Arc<dyn Store>, seed: u8) -> Log {
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new([seed; 32])
    };
    Log::open(Arc::clone(store), &options).await.unwrap()
}
