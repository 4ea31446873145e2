//! The running consumer daemon, observed from outside: its CPU time and its own counters.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use batchweave_client::{Client, ConnectOptions};
use batchweave_console::CliError;
use batchweave_console::programs::{self, Name};

use super::written::Shape;
use crate::bench::cpu::threads_seconds;
use crate::bench::server::Server;
use crate::demo::processes::{Program, Running, free_port};
use crate::demo::scrape::Counters;
use crate::error::bench_error;

const PATIENCE: Duration = Duration::from_mins(1);
const STOP: Duration = Duration::from_secs(15);
/// Smallest segment size: the arena grows by whole segments.
const SEGMENT_MIB: u64 = 64;
const ARENA_MIB: (u64, u64) = (256, 1024);

pub(super) struct Daemon {
    running: Running,
    socket: PathBuf,
    admin: u16,
    shape: Shape,
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
    /// Starts a daemon of the stream `case`.
    pub(super) fn start(
        server: &Server,
        folder: &Path,
        case: &str,
        shape: Shape,
        connections: u16,
    ) -> Result<Self, CliError> {
        let start = programs::find(Name::Consumer)
            .ok_or_else(|| CliError::Usage(programs::missing(Name::Consumer)))?;
        let admin = free_port()?;
        let socket = folder.join(format!("{case}.sock"));
        let smallest = (shape.slice_bytes >> 20).max(SEGMENT_MIB / 2) + 1;
        let segment = smallest.next_power_of_two();
        let step = shape.step_bytes() >> 20;
        let arena = (step * 4).clamp(ARENA_MIB.0, ARENA_MIB.1).max(segment);
        let config = format!(
            "store.url = {:?}\nsocket.path = {:?}\nadmin.listen = \"127.0.0.1:{admin}\"\n\
             arena = {{ bytes = \"{arena}MiB\", segment_bytes = \"{segment}MiB\", grow_after = \"0s\" }}\n\
             prefetch = {{ bytes = \"{}MiB\", steps = 1024, concurrency = {connections} }}\n",
            Server::url(case),
            socket.display().to_string(),
            arena / 2,
        );
        let path = folder.join(format!("{case}.toml"));
        std::fs::write(&path, config)?;
        let file = path.display().to_string();
        let args = start.first.into_iter().chain(["--config", &file]);
        let program = Program {
            name: "consumer".to_owned(),
            args: args.map(str::to_owned).collect(),
            path: start.path,
            env: server.env(),
            log: folder.join("consumer.log"),
        };
        Ok(Self {
            running: program.start()?,
            socket,
            admin,
            shape,
        })
    }

    /// Reads all steps, releasing each immediately.
    pub(super) async fn pass(&self) -> Result<Duration, CliError> {
        let (socket, shape) = (self.socket.clone(), self.shape);
        let read = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let options = ConnectOptions {
                timeout: PATIENCE,
                ..ConnectOptions::new(socket)
            };
            let mut reader = Client::connect(options).map_err(bench_error)?;
            for step in 0..shape.steps {
                let batch = reader.next(PATIENCE).map_err(bench_error)?;
                let slices = shape.slices as usize;
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

impl std::ops::Sub for Used {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu - earlier.cpu,
            fetched: self.fetched - earlier.fetched,
            needed: self.needed - earlier.needed,
            requests: self.requests - earlier.requests,
        }
    }
}
