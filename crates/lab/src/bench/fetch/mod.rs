//! `bench fetch`: reads from an S3 server into the arena and on to a rank, compared with raw sockets that
//! read the same objects from the same server.

mod daemon;
mod place;
mod raw;
mod rounds;
mod written;

use std::fmt::Write as _;
use std::sync::Arc;

use batchweave_daemon::config::ByteSize;
use batchweave_store::Store;
use clap::Args;
use serde::Serialize;

use self::daemon::Daemon;
use self::place::Place;
use self::raw::Raw;
use self::rounds::Rounds;
use self::written::Shape;
use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Style, table};

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
    /// Number of objects that hold a step; 1: several steps share an object
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    objects: Vec<u32>,
    /// Vary the size of slices, so that the reader needs index entries to locate them
    #[arg(long)]
    uneven: bool,
    /// Data ranks of the job; this node has the first
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    dp_size: u32,
    /// Bytes read in one pass if all slices are read
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
    /// Objects that hold a step, and those of them with slices of the rank.
    objects: u64,
    objects_read: u64,
    uneven: bool,
    dp_size: u32,
    steps: u64,
    /// Payload bytes of one pass.
    bytes: u64,
    mib_per_second: f64,
    raw_mib_per_second: Option<f64>,
    ratio_to_raw_tcp: Option<f64>,
    /// CPU time of the daemon, checksums included.
    cpu_s_per_gib: f64,
    raw_cpu_s_per_gib: Option<f64>,
    /// CPU time of the server during the daemon's and the raw sockets' passes; `None` for a foreign server.
    server_cpu_s_per_gib: Option<f64>,
    raw_server_cpu_s_per_gib: Option<f64>,
    read_amplification: f64,
    requests_per_step: f64,
}

impl Case {
    /// Returns the cells of the table.
    fn row(&self) -> Vec<String> {
        vec![
            ByteSize(self.slice_bytes).to_string(),
            self.slices.to_string(),
            self.objects.to_string(),
            self.objects_read.to_string(),
            format!("{:.0}", self.mib_per_second),
            part(self.raw_mib_per_second, 0),
            part(self.ratio_to_raw_tcp, 2),
            format!("{:.2}", self.cpu_s_per_gib),
            part(self.raw_cpu_s_per_gib, 2),
            part(self.server_cpu_s_per_gib, 2),
            part(self.raw_server_cpu_s_per_gib, 2),
            format!("{:.4}", self.read_amplification),
            format!("{:.3}", self.requests_per_step),
        ]
    }
}

/// Formats a figure, or `-` if it is unknown.
fn part(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}
#[derive(Debug, Serialize)]
pub(crate) struct FetchReport {
    endpoint: String,
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

pub(crate) async fn measure(args: &FetchArgs, context: &Context) -> Result<FetchReport, CliError> {
    let least = written::ROW_BYTES * u64::from(if args.uneven { written::SIZES } else { 1 });
    for size in &args.slice_bytes {
        if args.uneven && size.bytes() < least {
            let text = format!("--slice-bytes {size}: with --uneven at least 12KiB");
            return Err(CliError::Usage(text));
        }
        if size.bytes() == 0 || !size.bytes().is_multiple_of(written::ROW_BYTES) {
            let text = format!("--slice-bytes {size}: must be a whole multiple of 4KiB");
            return Err(CliError::Usage(text));
        }
    }
    let folder = tempfile::tempdir()?;
    let place = Place::new(context, folder.path()).await?;
    let (shapes, mut cases) = (shapes(args), Vec::new());
    if shapes.is_empty() {
        let text = "nothing to measure: --dp-size must divide --slices, --objects must not be above it, and a \
                    step has at most 256MiB";
        return Err(CliError::Usage(text.to_owned()));
    }
    for shape in shapes {
        cases.push(measure_case(&place, args, shape).await?);
    }
    let endpoint = place.endpoint.clone();
    Ok(FetchReport::new(args, endpoint.unwrap_or_default(), cases))
}

/// Returns the cases whose steps fit, whose slices the ranks share, and that fill the objects.
fn shapes(args: &FetchArgs) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for size in &args.slice_bytes {
        for &slices in &args.slices {
            for &objects in &args.objects {
                let step = size.bytes() * u64::from(slices);
                let fits = slices.is_multiple_of(args.dp_size) && objects <= slices;
                if step <= STEP_BYTES_MAX && fits {
                    shapes.push(Shape {
                        slice_bytes: size.bytes(),
                        slices,
                        steps: (args.bytes.bytes() / step).max(STEPS_MIN),
                        objects,
                        uneven: args.uneven,
                    });
                }
            }
        }
    }
    shapes
}

async fn measure_case(place: &Place, args: &FetchArgs, shape: Shape) -> Result<Case, CliError> {
    let name = format!(
        "{}k-{}-{}",
        shape.slice_bytes >> 10,
        shape.slices,
        shape.objects
    );
    let store = place.store(&name).await?;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let own = shape.slices / args.dp_size;
    let objects = written::write(&shared, shape, own).await?;
    let connected = match args.dp_size {
        1 => Raw::new(&store, args.connections.into()).await?,
        // The raw sockets read all slices.
        _ => None,
    };
    let daemon = Daemon::start(place, &name, shape, args.connections.into(), args.dp_size)?;
    // A warm-up: the arena exists, connections are open, the server's memory is warm.
    daemon.pass().await?;
    let mut rounds = Rounds::new(connected);
    for _ in 0..args.rounds {
        rounds.measure(place, &daemon).await?;
    }
    daemon.stop().await?;
    clean(&shared).await?;
    Ok(rounds.figures(args, shape, objects))
}

/// Deletes a case's objects.
async fn clean(store: &Arc<dyn Store>) -> Result<(), CliError> {
    let objects = batchweave_console::context::list(store.as_ref(), "").await?;
    let keys: Vec<String> = objects.into_iter().map(|object| object.key).collect();
    let refused = store.delete_many(&keys).await?;
    match refused.into_iter().next() {
        Some((_, why)) => Err(why.into()),
        None => Ok(()),
    }
}

fn middle(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

impl FetchReport {
    fn new(args: &FetchArgs, endpoint: String, cases: Vec<Case>) -> Self {
        let of = |least: u64, field: &dyn Fn(&Case) -> Option<f64>| -> Vec<f64> {
            let large = cases.iter().filter(|case| case.slice_bytes >= least);
            large.filter_map(field).collect()
        };
        let worst = |field: &dyn Fn(&Case) -> Option<f64>| {
            of(64 << 10, field).into_iter().max_by(f64::total_cmp)
        };
        Self {
            endpoint,
            connections: args.connections,
            rounds: args.rounds,
            ratio_to_raw_tcp: middle(of(1 << 20, &|case| case.ratio_to_raw_tcp)),
            cpu_s_per_gib: middle(of(1 << 20, &|case| Some(case.cpu_s_per_gib))),
            read_amplification: worst(&|case| Some(case.read_amplification)),
            requests_per_step: worst(&|case| {
                // A step larger than one request takes several.
                let one = case.slice_bytes * u64::from(case.slices) <= 8 << 20;
                one.then_some(case.requests_per_step)
            }),
            cases,
        }
    }

    pub(crate) fn text(&self, style: Style) -> String {
        let header = [
            "slice",
            "slices",
            "objects",
            "read",
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
            "from {} with {} connections, medians of {} rounds\n\n",
            self.endpoint, self.connections, self.rounds
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
