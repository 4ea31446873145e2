//! The running consumer daemon, observed from outside: its CPU time and its own counters.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use batchweave_client::{Client, ConnectOptions};

use super::super::cpu::threads_seconds;
use super::place::Place;
use super::written::Shape;
use crate::demo::processes::{Running, free_port};
use crate::demo::scrape::Counters;
use crate::error::bench_error;
use batchweave_console::CliError;

const PATIENCE: Duration = Duration::from_mins(1);
const STOP: Duration = Duration::from_secs(15);
/// Smallest segment size: the arena grows by whole segments.
const SEGMENT_MIB: u64 = 64;
const ARENA_MIB: (u64, u64) = (256, 1024);

pub(super) struct Daemon {
    running: Running,
    socket: PathBuf,
    admin: u16,
    steps: u64,
    /// Slices that the rank reads of each step.
    slices: usize,
    dp_size: u32,
}

/// CPU seconds and counters of the daemon so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) cpu: f64,
    pub(super) fetched: f64,
    pub(super) needed: f64,
    pub(super) requests: f64,
}

impl Daemon {
    pub(super) fn start(
        place: &Place,
        case: &str,
        Shape {
            slice_bytes,
            slices,
            steps,
            ..
        }: Shape,
        connections: usize,
        dp_size: u32,
    ) -> Result<Self, CliError> {
        let admin = free_port()?;
        let socket = place.folder.join(format!("{case}.sock"));
        let smallest = (slice_bytes >> 20).max(SEGMENT_MIB / 2) + 1;
        let segment = smallest.next_power_of_two();
        let step = (slice_bytes * u64::from(slices)) >> 20;
        let arena = (step * 4).clamp(ARENA_MIB.0, ARENA_MIB.1).max(segment);
        let config = format!(
            "[arena]\nbytes = \"{arena}MiB\"\nsegment_bytes = \"{segment}MiB\"\ngrow_after = \"0s\"\n\n\
             [socket]\npath = {:?}\n\n\
             [prefetch]\nbytes = \"{}MiB\"\nsteps = 1024\nconcurrency = {connections}\n\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\n",
            socket.display().to_string(),
            arena / 2,
        );
        Ok(Self {
            running: place.consumer(case, &config)?.start()?,
            socket,
            admin,
            steps,
            slices: (slices / dp_size) as usize,
            dp_size,
        })
    }

    /// Reads the rank's slices of all steps, releasing each immediately.
    pub(super) async fn pass(&self) -> Result<Duration, CliError> {
        let (socket, steps, slices) = (self.socket.clone(), self.steps, self.slices);
        let dp_size = self.dp_size;
        let read = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let options = ConnectOptions {
                timeout: PATIENCE,
                dp_size,
                ..ConnectOptions::new(socket)
            };
            let mut reader = Client::connect(options).map_err(bench_error)?;
            for step in 0..steps {
                let batch = reader.next(PATIENCE).map_err(bench_error)?;
                let whole = batch.is_some_and(|b| b.step() == step && b.slices().len() == slices);
                if !whole {
                    return Err(bench_error(format!("step {step} is not what was written")));
                }
            }
            Ok(begun.elapsed())
        });
        read.await.map_err(bench_error)?
    }

    pub(super) async fn used(&self) -> Result<Used, CliError> {
        let mut counters = Counters::default();
        counters.read(self.admin).await;
        let pid = self
            .running
            .pid()
            .ok_or_else(|| bench_error("the daemon ended"))?;
        Ok(Used {
            cpu: threads_seconds(pid)?,
            fetched: counters.sum("fetched_bytes_total", &[]),
            needed: counters.sum("needed_bytes_total", &[]),
            requests: counters.data_requests(),
        })
    }

    pub(super) async fn stop(mut self) -> Result<(), CliError> {
        self.running.stop(STOP).await?;
        Ok(())
    }
}

impl Used {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu - earlier.cpu,
            fetched: self.fetched - earlier.fetched,
            needed: self.needed - earlier.needed,
            requests: self.requests - earlier.requests,
        }
    }
}
