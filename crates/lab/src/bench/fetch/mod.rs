//! `bench fetch`: reads from an S3 server into the arena and on to a rank, compared with raw sockets that
//! read the same objects from the same server.

mod daemon;
mod raw;
mod written;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::output::{Style, table};
use batchweave_daemon::config::ByteSize;
use batchweave_store::Store;
use clap::Args;
use serde::Serialize;

use self::daemon::{Daemon, Used};
use self::raw::Raw;
use self::written::Shape;
use super::cpu::median;
use super::server::Server;
use crate::error::bench_error;

/// Largest step in the table: four must fit in the arena.
const STEP_BYTES_MAX: u64 = 256 << 20;
const STEPS_MIN: u64 = 4;
const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

#[derive(Debug, Clone, Args)]
pub(crate) struct FetchArgs {
    /// Sizes of a slice, whole multiples of 4KiB
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SIZE",
        default_value = "16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
    )]
    slice_bytes: Vec<ByteSize>,
    /// Slices in a step, all read on this node
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "1,8,64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    slices: Vec<u32>,
    /// Bytes read in one pass
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    bytes: ByteSize,
    /// Passes of each kind, alternating; the report has medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Requests in flight, for both the daemon and the raw sockets
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
}

/// One size and number of slices.
#[derive(Debug, Clone, Serialize)]
struct Case {
    slice_bytes: u64,
    slices: u32,
    steps: u64,
    /// Payload bytes of one pass.
    bytes: u64,
    mib_per_second: f64,
    raw_mib_per_second: f64,
    ratio_to_raw_tcp: f64,
    /// CPU time of the daemon, checksums included.
    cpu_s_per_gib: f64,
    raw_cpu_s_per_gib: f64,
    /// CPU time of the server during the daemon's and the raw sockets' passes.
    server_cpu_s_per_gib: f64,
    raw_server_cpu_s_per_gib: f64,
    read_amplification: f64,
    requests_per_step: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct FetchReport {
    connections: u16,
    rounds: u32,
    /// Medians over the cases with slices of 1 MiB and more.
    ratio_to_raw_tcp: Option<f64>,
    cpu_s_per_gib: Option<f64>,
    /// The worst of the cases with slices of 64 KiB and more.
    read_amplification: Option<f64>,
    requests_per_step: Option<f64>,
    cases: Vec<Case>,
}

/// A pass of the raw sockets, and one of the daemon.
struct Round {
    raw_wall: Duration,
    raw_cpu: Duration,
    raw_served: f64,
    wall: Duration,
    used: Used,
    served: f64,
}

pub(crate) async fn measure(args: &FetchArgs) -> Result<FetchReport, CliError> {
    let wrong =
        |size: &&ByteSize| size.bytes() == 0 || !size.bytes().is_multiple_of(written::ROW_BYTES);
    if let Some(size) = args.slice_bytes.iter().find(wrong) {
        let text = format!("--slice-bytes {size}: must be a whole multiple of 4KiB");
        return Err(CliError::Usage(text));
    }
    let folder = tempfile::tempdir()?;
    let server = Server::start(folder.path()).await?;
    let mut cases = Vec::new();
    for size in &args.slice_bytes {
        for &slices in &args.slices {
            let step = size.bytes() * u64::from(slices);
            if step <= STEP_BYTES_MAX {
                let shape = Shape {
                    slice_bytes: size.bytes(),
                    slices,
                    steps: (args.bytes.bytes() / step).max(STEPS_MIN),
                };
                cases.push(measure_case(&server, folder.path(), args, shape).await?);
            }
        }
    }
    if cases.is_empty() {
        let text = "nothing to measure: a step has at most 256MiB; give smaller --slice-bytes or fewer --slices";
        return Err(CliError::Usage(text.to_owned()));
    }
    Ok(FetchReport::new(args, cases))
}

async fn measure_case(
    server: &Server,
    folder: &Path,
    args: &FetchArgs,
    shape: Shape,
) -> Result<Case, CliError> {
    let name = format!("{}k-{}", shape.slice_bytes >> 10, shape.slices);
    let store = server.store(&name).await?;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    written::write(&shared, shape).await?;
    let raw = Arc::new(Raw::new(&store, args.connections.into()).await?);
    let daemon = Daemon::start(server, folder, &name, shape, args.connections)?;
    // A warm-up: the arena exists, connections are open, the server's memory is warm.
    daemon.pass().await?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        rounds.push(Round::measure(server, &raw, &daemon).await?);
    }
    daemon.stop().await?;
    // The server has it all in memory.
    let objects = batchweave_console::context::list(shared.as_ref(), "").await?;
    let keys: Vec<String> = objects.into_iter().map(|object| object.key).collect();
    match shared.delete_many(&keys).await?.into_iter().next() {
        Some((_, why)) => Err(why.into()),
        None => Ok(Case::new(shape, raw.bytes, &rounds)),
    }
}

impl Round {
    async fn measure(server: &Server, raw: &Arc<Raw>, daemon: &Daemon) -> Result<Self, CliError> {
        let idle = server.cpu()?;
        let passing = Arc::clone(raw);
        let pass = tokio::task::spawn_blocking(move || passing.pass());
        let (raw_wall, raw_cpu) = pass.await.map_err(bench_error)??;
        let between = server.cpu()?;
        let before = daemon.used().await?;
        let wall = daemon.pass().await?;
        Ok(Self {
            raw_wall,
            raw_cpu,
            raw_served: between - idle,
            wall,
            used: daemon.used().await? - before,
            served: server.cpu()? - between,
        })
    }
}

impl Case {
    fn new(shape: Shape, raw_bytes: u64, rounds: &[Round]) -> Self {
        let bytes = shape.step_bytes() * shape.steps;
        let rate = bytes as f64 / MIB / median(rounds, |r| r.wall.as_secs_f64());
        let raw_rate = raw_bytes as f64 / MIB / median(rounds, |r| r.raw_wall.as_secs_f64());
        let sum = |value: fn(&Round) -> f64| rounds.iter().map(value).sum::<f64>();
        let per_gib = |value| sum(value) / (rounds.len() as f64 * bytes as f64 / GIB);
        Self {
            slice_bytes: shape.slice_bytes,
            slices: shape.slices,
            steps: shape.steps,
            bytes,
            mib_per_second: rate,
            raw_mib_per_second: raw_rate,
            ratio_to_raw_tcp: rate / raw_rate,
            cpu_s_per_gib: per_gib(|r| r.used.cpu),
            raw_cpu_s_per_gib: per_gib(|r| r.raw_cpu.as_secs_f64()),
            server_cpu_s_per_gib: per_gib(|r| r.served),
            raw_server_cpu_s_per_gib: per_gib(|r| r.raw_served),
            read_amplification: sum(|r| r.used.fetched) / sum(|r| r.used.needed).max(1.0),
            requests_per_step: sum(|r| r.used.requests) / rounds.len() as f64 / shape.steps as f64,
        }
    }

    /// Returns the cells of the table.
    fn row(&self) -> Vec<String> {
        vec![
            ByteSize(self.slice_bytes).to_string(),
            self.slices.to_string(),
            format!("{:.0}", self.mib_per_second),
            format!("{:.0}", self.raw_mib_per_second),
            format!("{:.2}", self.ratio_to_raw_tcp),
            format!("{:.2}", self.cpu_s_per_gib),
            format!("{:.2}", self.raw_cpu_s_per_gib),
            format!("{:.2}", self.server_cpu_s_per_gib),
            format!("{:.2}", self.raw_server_cpu_s_per_gib),
            format!("{:.4}", self.read_amplification),
            format!("{:.3}", self.requests_per_step),
        ]
    }
}

/// Formats a figure, or `-` without cases.
fn part(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

impl FetchReport {
    fn new(args: &FetchArgs, cases: Vec<Case>) -> Self {
        let of = |least: u64, field: fn(&Case) -> f64| -> Vec<f64> {
            let large = cases.iter().filter(|case| case.slice_bytes >= least);
            large.map(field).collect()
        };
        let middle = |all: Vec<f64>| (!all.is_empty()).then(|| median(&all, |value| *value));
        let worst = |all: Vec<f64>| all.into_iter().max_by(f64::total_cmp);
        // A step larger than one request takes several.
        let one = |case: &&Case| {
            case.slice_bytes >= 64 << 10 && case.slice_bytes * u64::from(case.slices) <= 8 << 20
        };
        let requests = cases.iter().filter(one).map(|case| case.requests_per_step);
        Self {
            connections: args.connections,
            rounds: args.rounds,
            ratio_to_raw_tcp: middle(of(1 << 20, |case| case.ratio_to_raw_tcp)),
            cpu_s_per_gib: middle(of(1 << 20, |case| case.cpu_s_per_gib)),
            read_amplification: worst(of(64 << 10, |case| case.read_amplification)),
            requests_per_step: worst(requests.collect()),
            cases,
        }
    }

    pub(crate) fn text(&self, style: Style) -> String {
        let header = [
            "slice",
            "slices",
            "MiB/s",
            "raw",
            "ratio",
            "CPU s/GiB",
            "raw",
            "server",
            "its raw",
            "amplif.",
            "req/step",
        ];
        let rows: Vec<_> = self.cases.iter().map(Case::row).collect();
        let mut text = format!(
            "from dev-s3 with {} connections, medians of {} rounds\n\n",
            self.connections, self.rounds
        );
        text.push_str(&table(style, &header, rows));
        let _ = writeln!(
            text,
            "\nslices of 1 MiB and more: {} of raw TCP, {} CPU s/GiB; of 64 KiB and more: \
             amplification at most {}, at most {} requests per step",
            part(self.ratio_to_raw_tcp, 2),
            part(self.cpu_s_per_gib, 2),
            part(self.read_amplification, 4),
            part(self.requests_per_step, 3),
        );
        text
    }
}
