//! `bench ingest`: finished arrays of any size, from files to committed batches, without a tokenizer, compared with
//! copying the same files on all cores.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use batchweave_console::CliError;
use batchweave_daemon::config::ByteSize;
use batchweave_producer::config::{PackingMode, ProducerConfig, TokenizerKind};
use batchweave_store::OpenOptions;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::produce::{Ours, until_finished};
use super::{blobs, mb};
use crate::bench::cpu::{cores, in_turns, median, on_all_cores};
use crate::bench::server::Server;

/// The form of a batch: as many ranks as a small job has, and samples as in a micro-batch.
const SLICES: u32 = 16;
const ROWS_PER_SLICE: u32 = 4;
/// The sizes of batches that can be measured: of smaller ones a GiB is millions of samples.
const BATCH_BYTES: RangeInclusive<u64> = 16 << 10..=2 << 30;
/// Bytes of a read and a write of the copy.
const COPY_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Args)]
pub(crate) struct IngestArgs {
    /// Mean sizes of a batch of 64 samples; a sample's size varies from 0.4 to 1.6 of the mean
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_values = ["100KiB", "1MiB", "10MiB", "42MiB", "64MiB"])]
    batch_bytes: Vec<ByteSize>,
    /// Bytes of samples per measurement
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    bytes: ByteSize,
    /// The stores: a folder, an embedded `dev-s3`
    #[arg(long, value_name = "STORES", value_delimiter = ',', default_values = ["folder", "dev-s3"])]
    stores: Vec<Kind>,
    /// Measurements of each side, in turns; the report has medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Folder,
    DevS3,
}

#[derive(Debug, Serialize)]
pub(crate) struct IngestReport {
    cores: usize,
    slices: u32,
    rows_per_slice: u32,
    rounds: u64,
    cases: Vec<Case>,
}

/// The medians of a size of batches and a store.
#[derive(Debug, Serialize)]
struct Case {
    batch_bytes: u64,
    store: Kind,
    /// The form of the input: `npy` for a file per sample, `tar` for shards.
    input: &'static str,
    bytes: u64,
    batches: u64,
    batches_per_second: f64,
    bytes_per_second: f64,
    copy_bytes_per_second: f64,
    ratio_to_copy: f64,
    cpu_seconds_per_gb: f64,
    server_cpu_seconds_per_gb: f64,
    /// Seconds before the first sample is read: files are found and pinned.
    start_seconds: f64,
}

struct Round {
    ours: Ours,
    copy: f64,
}

pub(crate) async fn measure(args: &IngestArgs) -> Result<IngestReport, CliError> {
    let mut report = IngestReport {
        cores: cores(),
        slices: SLICES,
        rows_per_slice: ROWS_PER_SLICE,
        rounds: args.rounds,
        cases: Vec::new(),
    };
    let wrong = |size: &&ByteSize| !BATCH_BYTES.contains(&size.0);
    if let Some(size) = args.batch_bytes.iter().find(wrong) {
        let text = format!("--batch-bytes {size}: give sizes from 16KiB to 2GiB");
        return Err(CliError::Usage(text));
    }
    for size in &args.batch_bytes {
        let folder = tempfile::tempdir()?;
        let samples = u64::from(SLICES * ROWS_PER_SLICE);
        let input = blobs::make(folder.path(), args.bytes.0, size.0, samples)?;
        for store in &args.stores {
            let case = case(args, folder.path(), &input, size.0, *store).await?;
            report.cases.push(case);
        }
    }
    Ok(report)
}

async fn case(
    args: &IngestArgs,
    folder: &Path,
    input: &blobs::Input,
    batch_bytes: u64,
    store: Kind,
) -> Result<Case, CliError> {
    let mut rounds = Vec::new();
    for n in 0..args.rounds {
        let copy = async || copy(folder, &input.files);
        let (copy, ours) = in_turns(n, copy, async || run(folder, input, store).await).await?;
        rounds.push(Round { ours, copy });
    }
    let bytes = input.bytes as f64;
    let batches = rounds.last().map_or(0, |round| round.ours.batches);
    Ok(Case {
        batch_bytes,
        store,
        input: input.form,
        bytes: input.bytes,
        batches,
        batches_per_second: median(&rounds, |r| r.ours.batches as f64 / r.ours.wall),
        bytes_per_second: median(&rounds, |r| bytes / r.ours.wall),
        copy_bytes_per_second: median(&rounds, |r| bytes / r.copy),
        ratio_to_copy: median(&rounds, |r| r.copy / r.ours.wall),
        cpu_seconds_per_gb: median(&rounds, |r| r.ours.cpu / bytes * 1e9),
        server_cpu_seconds_per_gb: median(&rounds, |r| r.ours.server / bytes * 1e9),
        start_seconds: median(&rounds, |r| r.ours.start),
    })
}

/// Runs a producer of the input to its end, and removes what it wrote.
async fn run(folder: &Path, input: &blobs::Input, store: Kind) -> Result<Ours, CliError> {
    let config = config(input);
    match store {
        Kind::DevS3 => {
            let server = Arc::new(Server::start(folder).await?);
            let store = Arc::new(server.store("stream").await?);
            until_finished(store, &config, Some(server)).await
        }
        Kind::Folder => {
            let stream = folder.join("stream");
            std::fs::create_dir(&stream)?;
            let url = format!("file://{}", stream.display());
            let store = batchweave_store::open(&url, &OpenOptions::default()).await?;
            let ours = until_finished(store, &config, None).await?;
            std::fs::remove_dir_all(stream)?;
            Ok(ours)
        }
    }
}

fn config(input: &blobs::Input) -> ProducerConfig {
    let mut config = ProducerConfig::default();
    config.store.url = "memory://none".into();
    config.producer.name = "bench".into();
    config.stream.producers = vec!["bench".to_owned()];
    config.stream.slices = SLICES;
    config.stream.rows_per_slice = ROWS_PER_SLICE;
    config.stream.seq_len = 1;
    let files = input.files.iter();
    config.source.paths = files.map(|path| path.display().to_string()).collect();
    config.tokenizer.kind = TokenizerKind::Bytes;
    config.packing.mode = PackingMode::Opaque;
    config.packing.arrays = vec![blobs::array()];
    config
}

/// Returns the seconds in which all cores read the files and write their bytes to others, which are synced and removed.
fn copy(folder: &Path, files: &[PathBuf]) -> Result<f64, CliError> {
    let to = folder.join("copy");
    std::fs::create_dir(&to)?;
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    on_all_cores(|| {
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(n) else {
                return Ok(());
            };
            let (mut from, mut to) = (File::open(path)?, File::create(to.join(n.to_string()))?);
            loop {
                let read = from.read(&mut buffer)?;
                if read == 0 {
                    break;
                }
                to.write_all(&buffer[..read])?;
            }
            to.sync_all()?;
        }
    })?;
    let seconds = began.elapsed().as_secs_f64();
    std::fs::remove_dir_all(to)?;
    Ok(seconds)
}

impl IngestReport {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "batches of {} slices of {} samples, medians of {} rounds, {} cores\n\
             batch     store   input  to the log    copied        of it  batches/s  CPU s/GB  server's\n",
            self.slices, self.rows_per_slice, self.rounds, self.cores
        );
        for case in &self.cases {
            let store = match case.store {
                Kind::Folder => "folder",
                Kind::DevS3 => "dev-s3",
            };
            let _ = writeln!(
                text,
                "{:<9} {store:<7} {:<6} {:<13} {:<12} {:>6.2} {:>10.1} {:>9.2} {:>9.2}",
                ByteSize(case.batch_bytes).to_string(),
                case.input,
                mb(case.bytes_per_second),
                mb(case.copy_bytes_per_second),
                case.ratio_to_copy,
                case.batches_per_second,
                case.cpu_seconds_per_gb,
                case.server_cpu_seconds_per_gb,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_and_large_samples_become_batches_in_a_folder() {
        let args = IngestArgs {
            batch_bytes: vec![ByteSize(64_000), ByteSize(8 << 20)],
            bytes: ByteSize(9 << 20),
            stores: vec![Kind::Folder],
            rounds: 2,
        };
        let report = measure(&args).await.unwrap();
        let inputs: Vec<_> = report.cases.iter().map(|case| case.input).collect();
        assert_eq!(inputs, ["tar", "npy"]);
        for case in &report.cases {
            assert_eq!(
                case.batches,
                case.bytes.div_ceil(case.batch_bytes),
                "{case:?}"
            );
            assert!(case.ratio_to_copy > 0.0, "{case:?}");
        }
        assert_eq!(report.text().lines().count(), 4);
        for size in [1, 3 << 30] {
            let batch_bytes = vec![ByteSize(size)];
            let args = IngestArgs {
                batch_bytes,
                ..args.clone()
            };
            let why = measure(&args).await.unwrap_err().to_string();
            assert!(why.contains("give sizes from 16KiB to 2GiB"), "{why}");
        }
    }
}
