//! The cost of a fork near the end of a long log.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_core::ids::{Step, StreamId};
use batchweave_log::{ForkError, make_fork, plan_fork};
use batchweave_store::Store;
use batchweave_store::counting::Counted;
use batchweave_store::memory::MemoryStore;
use serde::Serialize;
use tokio::time::Instant;

use super::delayed::{Delay, Delayed};
use super::reading;
use crate::bench::cpu::thread_time;
use crate::error::bench_error;

/// Steps of the parent from the first one of the fork on.
const ABOVE: Step = 100;

/// A fork that was planned and stored, with the latencies of S3 Standard.
#[derive(Debug, Serialize)]
pub(super) struct Forked {
    /// Requests to the parent and to the fork.
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// The virtual time of the requests and the CPU time of the rest.
    pub(super) seconds: f64,
}

/// Forks the stream of `steps` steps a little below its head.
pub(super) async fn near_the_end(
    memory: &Arc<dyn Store>,
    steps: Step,
    seed: u64,
) -> Result<Forked, CliError> {
    let counted =
        |store: &Arc<dyn Store>| Counted::new(Delayed::over(store, Delay::s3_standard(seed)));
    let empty: Arc<dyn Store> = MemoryStore::new();
    let (parent, child) = (counted(memory), counted(&empty));
    let (start, cpu) = (Instant::now(), thread_time()?);
    let source: Arc<dyn Store> = Arc::new(parent.clone());
    let step = steps.saturating_sub(ABOVE);
    let plan = plan_fork(&source, &reading(), step, false)
        .await
        .map_err(failed)?;
    let store: Arc<dyn Store> = Arc::new(child.clone());
    let id = StreamId::from_random([7; 16]);
    make_fork(&store, &plan, id, "2026-01-01T00:00:00Z".to_owned())
        .await
        .map_err(failed)?;
    let cpu = thread_time()?.saturating_sub(cpu);
    let (read, written) = (parent.counts(), child.counts());
    Ok(Forked {
        requests: read.requests() + written.requests(),
        bytes: read.bytes_read() + written.bytes_written(),
        seconds: (start.elapsed() + cpu).as_secs_f64(),
    })
}

fn failed(why: ForkError) -> CliError {
    bench_error(why.to_string())
}
