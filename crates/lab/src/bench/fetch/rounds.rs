//! The rounds of a case: passes of the raw sockets and of the daemon in turn, and the figures of both.

use std::sync::Arc;
use std::time::Duration;

use super::daemon::{Daemon, Used};
use super::place::Place;
use super::raw::Raw;
use super::written::Shape;
use super::{Case, FetchArgs, GIB, MIB};
use crate::error::bench_error;
use batchweave_console::CliError;

/// The times of the passes of a case so far.
pub(super) struct Rounds {
    raw: Option<Arc<Raw>>,
    walls: Vec<Duration>,
    raw_walls: Vec<Duration>,
    raw_cpu: Vec<Duration>,
    used: Used,
    /// CPU seconds of the server during passes of the daemon; `None` for a foreign server.
    served: Option<f64>,
    raw_served: Option<f64>,
}

impl Rounds {
    pub(super) fn new(raw: Option<Raw>) -> Self {
        Self {
            raw: raw.map(Arc::new),
            walls: Vec::new(),
            raw_walls: Vec::new(),
            raw_cpu: Vec::new(),
            used: Used::default(),
            served: Some(0.0),
            raw_served: Some(0.0),
        }
    }

    /// Measures one pass of the raw sockets, if there are any, and one of the daemon.
    pub(super) async fn measure(&mut self, place: &Place, daemon: &Daemon) -> Result<(), CliError> {
        let idle = place.server_cpu()?;
        if let Some(raw) = self.raw.clone() {
            let took = tokio::task::spawn_blocking(move || raw.pass())
                .await
                .map_err(bench_error)??;
            self.raw_walls.push(took.wall);
            self.raw_cpu.push(took.cpu);
        }
        let between = place.server_cpu()?;
        let before = daemon.used().await?;
        self.walls.push(daemon.pass().await?);
        let now = daemon.used().await?.since(before);
        self.raw_served = sum(self.raw_served, between, idle);
        self.served = sum(self.served, place.server_cpu()?, between);
        self.used = Used {
            cpu: self.used.cpu + now.cpu,
            fetched: self.used.fetched + now.fetched,
            needed: self.used.needed + now.needed,
            requests: self.used.requests + now.requests,
        };
        Ok(())
    }

    /// Returns the figures of the case; `objects` are those of a step, and those of them that are read.
    pub(super) fn figures(self, args: &FetchArgs, shape: Shape, objects: (u64, u64)) -> Case {
        let rounds = f64::from(args.rounds);
        let bytes = shape.bytes(shape.slices / args.dp_size) * shape.steps;
        let rate = bytes as f64 / MIB / median(self.walls);
        let raw_walls = self.raw_walls;
        let raw_rate = self
            .raw
            .map(|raw| raw.bytes as f64 / MIB / median(raw_walls));
        let gib = rounds * bytes as f64 / GIB;
        let raw_cpu = self.raw_cpu.iter().map(Duration::as_secs_f64).sum::<f64>();
        Case {
            slice_bytes: shape.slice_bytes,
            slices: shape.slices,
            objects: objects.0,
            objects_read: objects.1,
            uneven: shape.uneven,
            dp_size: args.dp_size,
            steps: shape.steps,
            bytes,
            mib_per_second: rate,
            raw_mib_per_second: raw_rate,
            ratio_to_raw_tcp: raw_rate.map(|raw| rate / raw),
            cpu_s_per_gib: self.used.cpu / gib,
            raw_cpu_s_per_gib: raw_rate.map(|_| raw_cpu / gib),
            server_cpu_s_per_gib: self.served.map(|cpu| cpu / gib),
            raw_server_cpu_s_per_gib: self
                .raw_served
                .filter(|_| raw_rate.is_some())
                .map(|cpu| cpu / gib),
            read_amplification: self.used.fetched / self.used.needed.max(1.0),
            requests_per_step: self.used.requests / rounds / shape.steps as f64,
        }
    }
}

fn sum(so_far: Option<f64>, now: Option<f64>, before: Option<f64>) -> Option<f64> {
    Some(so_far? + now? - before?)
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all.get(all.len() / 2)
        .map_or(f64::NAN, Duration::as_secs_f64)
}
