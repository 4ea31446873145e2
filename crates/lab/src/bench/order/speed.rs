//! `bench order --speed`: producers that read shuffled sources, compared with the same input in order; and the bytes
//! that several producers read of it together.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use batchweave_console::CliError;
use batchweave_daemon::config::ByteSize;
use batchweave_dev_s3::{LatencyProfile, Op};
use serde::Serialize;

use super::OrderArgs;
use super::corpus;
use super::daemons::{Daemons, InputServer, Task};
use crate::bench::cpu::median;
use crate::bench::producing::{Text, TextArgs};

/// Producers that read an input together.
const PRODUCERS: u32 = 16;
/// Rows of a row group.
const GROUP_ROWS: usize = 1000;
/// Number of Parquet files.
const PARQUET_FILES: usize = 8;
const CL100K: &str = "kind = \"embedded\"\nname = \"cl100k_base\"";
const BYTES: &str = "kind = \"bytes\"";

#[derive(Debug, Serialize)]
pub(crate) struct SpeedReport {
    text_bytes: u64,
    /// From the start of a producer to the end of one with a single document, which is subtracted.
    start_seconds: f64,
    /// Speed of a shuffled source over that of an ordered one: the lowest of `places`.
    shuffled_over_ordered_speed: f64,
    places: Vec<PlaceReport>,
    /// Bytes that several producers read together, over those of the input: the highest of `reads`.
    bytes_read_over_input: f64,
    reads: Vec<ReadsReport>,
}

/// The speeds with an input in one place.
#[derive(Debug, Serialize)]
struct PlaceReport {
    input: &'static str,
    ordered_bytes_per_second: f64,
    shuffled_bytes_per_second: f64,
    shuffled_over_ordered_speed: f64,
    /// The ratio of each round.
    rounds: Vec<f64>,
}

/// The reads of producers that share an input in S3.
#[derive(Debug, Serialize)]
struct ReadsReport {
    form: &'static str,
    producers: u32,
    input_bytes: u64,
    read_bytes: u64,
    requests: u64,
    bytes_read_over_input: f64,
}

pub(super) async fn measure(args: &OrderArgs) -> Result<SpeedReport, CliError> {
    let text = Text::new(&TextArgs::generated(args.mib))?;
    let folder = text.folder();
    let mut daemons = Daemons::new(folder)?;
    let start = start(args, &mut daemons, folder).await?;
    let local = text.folder().join("*.jsonl").display().to_string();
    let work = Work {
        args,
        text: &text,
        start,
    };
    let mut places = vec![work.place(&mut daemons, "files", local, None).await?];
    let (latency, objects) = (LatencyProfile::S3Standard, folder.join("s3"));
    let server = InputServer::start(&text.files, &objects, latency).await?;
    let input = InputServer::input();
    places.push(
        work.place(&mut daemons, "s3-standard", input, Some(&server))
            .await?,
    );
    let lines = reads(args, &mut daemons, "lines", &text.files, &server).await?;
    server.server.shutdown().await;
    let parquet = parquet_files(folder, &text)?;
    let objects = folder.join("s3-parquet");
    let server = InputServer::start(&parquet, &objects, LatencyProfile::None).await?;
    let groups = reads(args, &mut daemons, "row groups", &parquet, &server).await?;
    server.server.shutdown().await;
    let reads = vec![lines, groups];
    let speeds = places.iter().map(|place| place.shuffled_over_ordered_speed);
    Ok(SpeedReport {
        text_bytes: text.bytes,
        start_seconds: start,
        shuffled_over_ordered_speed: speeds.fold(f64::INFINITY, f64::min),
        bytes_read_over_input: reads
            .iter()
            .map(|reads| reads.bytes_read_over_input)
            .fold(0.0, f64::max),
        places,
        reads,
    })
}

/// Measures producers that have one document.
async fn start(args: &OrderArgs, daemons: &mut Daemons, folder: &Path) -> Result<f64, CliError> {
    let input = folder.join("one");
    fs::create_dir(&input)?;
    fs::write(input.join("one.jsonl"), "{\"text\":\"one\"}\n")?;
    let task = Task {
        input: input.display().to_string(),
        window: Some(args.window),
        producers: 1,
        tokenizer: CL100K,
        server: None,
    };
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        rounds.push(daemons.run(&task).await?);
    }
    Ok(median(&rounds, |seconds| *seconds))
}

/// The work of one producer that is measured in both orders.
struct Work<'a> {
    args: &'a OrderArgs,
    text: &'a Text,
    /// Seconds that are subtracted from each run.
    start: f64,
}

impl Work<'_> {
    /// Measures ordered and shuffled producers in turns.
    async fn place(
        &self,
        daemons: &mut Daemons,
        name: &'static str,
        input: String,
        server: Option<&InputServer>,
    ) -> Result<PlaceReport, CliError> {
        let task = |window: Option<ByteSize>| Task {
            input: input.clone(),
            window,
            producers: 1,
            tokenizer: CL100K,
            server,
        };
        let tasks = [task(None), task(Some(self.args.window))];
        let mut rounds = Vec::new();
        for n in 0..self.args.rounds as usize {
            let mut seconds = [0.0; 2];
            // The order alternates, so that other load on the machine affects both sides.
            for side in [n % 2, (n + 1) % 2] {
                seconds[side] = daemons.run(&tasks[side]).await? - self.start;
            }
            rounds.push(seconds);
        }
        let bytes = self.text.bytes as f64;
        Ok(PlaceReport {
            input: name,
            ordered_bytes_per_second: median(&rounds, |[ordered, _]| bytes / ordered),
            shuffled_bytes_per_second: median(&rounds, |[_, shuffled]| bytes / shuffled),
            shuffled_over_ordered_speed: median(&rounds, |[ordered, shuffled]| ordered / shuffled),
            rounds: rounds
                .iter()
                .map(|[ordered, shuffled]| ordered / shuffled)
                .collect(),
        })
    }
}

/// Counts what producers that share the input read of it.
async fn reads(
    args: &OrderArgs,
    daemons: &mut Daemons,
    form: &'static str,
    files: &[PathBuf],
    server: &InputServer,
) -> Result<ReadsReport, CliError> {
    let mut input_bytes = 0;
    for file in files {
        input_bytes += file.metadata()?.len();
    }
    let before = server.server.stats();
    let task = Task {
        input: InputServer::input(),
        window: Some(args.window),
        producers: PRODUCERS,
        tokenizer: BYTES,
        server: Some(server),
    };
    daemons.run(&task).await?;
    let after = server.server.stats();
    let read_bytes = after.bytes_out - before.bytes_out;
    Ok(ReadsReport {
        form,
        producers: PRODUCERS,
        input_bytes,
        read_bytes,
        requests: after.of(Op::Get) - before.of(Op::Get),
        bytes_read_over_input: read_bytes as f64 / input_bytes as f64,
    })
}

fn parquet_files(folder: &Path, text: &Text) -> Result<Vec<PathBuf>, CliError> {
    let each = text.documents.len().div_ceil(PARQUET_FILES).max(1);
    let mut files = Vec::new();
    for (n, some) in text.documents.chunks(each).enumerate() {
        let path = folder.join(format!("documents-{n}.parquet"));
        corpus::parquet(&path, some, GROUP_ROWS)?;
        files.push(path);
    }
    Ok(files)
}

impl SpeedReport {
    pub(super) fn text(&self, text: &mut String) {
        for place in &self.places {
            let _ = writeln!(
                text,
                "speed      {:.3} of ordered from {}: {:.1} and {:.1} MB/s of text",
                place.shuffled_over_ordered_speed,
                place.input,
                place.shuffled_bytes_per_second / 1e6,
                place.ordered_bytes_per_second / 1e6,
            );
        }
        for reads in &self.reads {
            let _ = writeln!(
                text,
                "reads      {:.4} of the input by {} producers together, {} of {} ({} requests)",
                reads.bytes_read_over_input,
                reads.producers,
                reads.form,
                ByteSize(reads.input_bytes),
                reads.requests,
            );
        }
    }
}
