//! `bench images`: from tar shards of JPEGs to committed batches and to a trainer, compared with decoding and resizing
//! alone, and with a PyTorch DataLoader. Python makes the pictures, and is the trainer and the DataLoader.

mod decoder;
mod runs;

use std::path::{Path, PathBuf};

use batchweave_console::CliError;
use clap::Args;
use serde::{Deserialize, Serialize};

use self::runs::{Ingest, Runs};
use super::cpu::{cores, median};
use super::python;
use crate::error::bench_error;

const MODULE: &str = "batchweave.bench.images";
/// Side of the pictures that trainers get.
const SIDE: u64 = 224;
/// Images in a batch.
const BATCH: u32 = 64;

#[derive(Debug, Clone, Args)]
pub(crate) struct ImagesArgs {
    /// Python with the batchweave package and Pillow; with torch and webdataset it also measures a DataLoader
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Number of images of 500 x 375 pixels; 256 of them differ
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    images: u32,
    /// Measurements of each side, in turns; the report has medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct ImagesReport {
    cores: usize,
    images: u32,
    jpeg_bytes: u64,
    /// Decoding and resizing alone, from memory.
    decoder_images_per_second: f64,
    /// From tar shards to committed batches in a folder.
    images_per_second: f64,
    /// Seconds from the start of a producer to the end of one with a single image, which are subtracted.
    start_seconds: f64,
    ratio_to_decoder: f64,
    /// CPU time of the decoder alone divided by that of the producer.
    ratio_of_cpu: f64,
    /// From the start of the producer to the trainer's last batch, through a consumer daemon.
    live_images_per_second: f64,
    /// The same from a stream that is there already.
    stored_images_per_second: f64,
    dataloader_images_per_second: Option<f64>,
    ratio_to_dataloader: Option<f64>,
    stored_ratio_to_dataloader: Option<f64>,
    /// The package that the DataLoader lacks, if one is.
    missing: Option<String>,
    /// Memory of the producer after a quarter of its time and at its end, in bytes.
    quarter_rss_bytes: u64,
    end_rss_bytes: u64,
    rounds: Vec<Round>,
}

/// The figures of a round, in seconds.
#[derive(Debug, Serialize)]
struct Round {
    decoder: f64,
    decoder_cpu: f64,
    ingest: f64,
    ingest_cpu: f64,
    live: f64,
    stored: f64,
    dataloader: Option<f64>,
    quarter_rss_bytes: u64,
    end_rss_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Made {
    jpeg_bytes: u64,
}

/// The report of a DataLoader.
#[derive(Debug, Deserialize)]
struct Loaded {
    #[serde(default)]
    began: f64,
    #[serde(default)]
    ended: f64,
    missing: Option<String>,
}

pub(crate) async fn measure(args: &ImagesArgs) -> Result<ImagesReport, CliError> {
    let folder = tempfile::tempdir()?;
    let (shards, one) = (folder.path().join("shards"), folder.path().join("one"));
    let made: Made = part(args, "make", &shards, args.images).await?;
    part::<Made>(args, "make", &one, 1).await?;
    let files = decoder::files(&shards)?;
    let mut runs = Runs::new(folder.path(), &args.python, args.images)?;
    let start = starts(&mut runs, &one, args.rounds).await?;
    let (mut rounds, mut missing) = (Vec::new(), None);
    for n in 0..args.rounds {
        // The order alternates, so that other load on the machine affects all sides.
        let (alone, (ingest, live, stored)) = if n % 2 == 0 {
            let alone = decoder::alone(&files)?;
            (alone, ours(&mut runs, &shards).await?)
        } else {
            let ours = ours(&mut runs, &shards).await?;
            (decoder::alone(&files)?, ours)
        };
        let rival: Loaded = part(args, "dataloader", &shards, args.images).await?;
        let dataloader = rival.missing.is_none().then_some(rival.ended - rival.began);
        missing = rival.missing;
        rounds.push(Round {
            decoder: alone.wall,
            decoder_cpu: alone.cpu,
            ingest: ingest.seconds - start.seconds,
            ingest_cpu: ingest.cpu - start.cpu,
            live,
            stored,
            dataloader,
            quarter_rss_bytes: ingest.quarter_rss,
            end_rss_bytes: ingest.end_rss,
        });
    }
    Ok(report(args, made, start.seconds, missing, rounds))
}

/// The part of an ingest that does not depend on the number of images, in seconds.
struct StartCost {
    seconds: f64,
    cpu: f64,
}

/// Measures ingests of a single image.
async fn starts(runs: &mut Runs, one: &Path, rounds: u32) -> Result<StartCost, CliError> {
    let mut starts = Vec::new();
    for _ in 0..rounds {
        starts.push(runs.ingest(one).await?);
        runs.remove()?;
    }
    Ok(StartCost {
        seconds: median(&starts, |run| run.seconds),
        cpu: median(&starts, |run| run.cpu),
    })
}

/// Measures the producer, then a trainer of its stream, then both at once.
async fn ours(runs: &mut Runs, shards: &Path) -> Result<(Ingest, f64, f64), CliError> {
    let ingest = runs.ingest(shards).await?;
    let stored = runs.stored().await?;
    runs.remove()?;
    let live = runs.live(shards).await?;
    runs.remove()?;
    Ok((ingest, live, stored))
}

/// Runs one part of the Python module on a folder, and returns its report.
async fn part<T: for<'a> Deserialize<'a>>(
    args: &ImagesArgs,
    name: &str,
    folder: &Path,
    images: u32,
) -> Result<T, CliError> {
    std::fs::create_dir_all(folder)?;
    let words = [
        name.to_owned(),
        folder.display().to_string(),
        "--images".to_owned(),
        images.to_string(),
        "--workers".to_owned(),
        cores().to_string(),
        "--batch".to_owned(),
        BATCH.to_string(),
    ];
    let text = python::report(&args.python, MODULE, &words, &[], true).await?;
    serde_json::from_str(&text).map_err(|why| bench_error(format!("{MODULE} {name}: {why}")))
}

fn report(
    args: &ImagesArgs,
    made: Made,
    start_seconds: f64,
    missing: Option<String>,
    rounds: Vec<Round>,
) -> ImagesReport {
    let images = f64::from(args.images);
    let rate = |seconds: &dyn Fn(&Round) -> f64| median(&rounds, |round| images / seconds(round));
    let over = |value: &dyn Fn(&Round) -> f64| {
        let known = rounds.iter().all(|round| round.dataloader.is_some());
        known.then(|| median(&rounds, |round| value(round)))
    };
    let loaded = |round: &Round| round.dataloader.unwrap_or_default();
    ImagesReport {
        cores: cores(),
        images: args.images,
        jpeg_bytes: made.jpeg_bytes,
        decoder_images_per_second: rate(&|round| round.decoder),
        images_per_second: rate(&|round| round.ingest),
        start_seconds,
        ratio_to_decoder: median(&rounds, |round| round.decoder / round.ingest),
        ratio_of_cpu: median(&rounds, |round| round.decoder_cpu / round.ingest_cpu),
        live_images_per_second: rate(&|round| round.live),
        stored_images_per_second: rate(&|round| round.stored),
        dataloader_images_per_second: over(&|round| images / loaded(round)),
        ratio_to_dataloader: over(&|round| loaded(round) / round.live),
        stored_ratio_to_dataloader: over(&|round| loaded(round) / round.stored),
        missing,
        quarter_rss_bytes: median(&rounds, |round| round.quarter_rss_bytes as f64) as u64,
        end_rss_bytes: median(&rounds, |round| round.end_rss_bytes as f64) as u64,
        rounds,
    }
}

impl ImagesReport {
    pub(crate) fn text(&self) -> String {
        let dataloader = match (
            self.dataloader_images_per_second,
            self.ratio_to_dataloader,
            self.stored_ratio_to_dataloader,
        ) {
            (Some(rate), Some(live), Some(stored)) => format!(
                "a PyTorch DataLoader  {rate:6.0} images/s: {live:.2} times as fast is the producer with a trainer (goal 4), \
                 {stored:.2} times a trainer of the stored stream",
            ),
            _ => format!(
                "a PyTorch DataLoader  not measured: {} is not installed; give a Python with torch and webdataset: \
                 --python PROGRAM",
                self.missing.as_deref().unwrap_or("a package")
            ),
        };
        format!(
            "{} JPEGs of {:.1} kB, to {SIDE} x {SIDE} pixels, {} cores\n\
             decoder alone         {:6.0} images/s\n\
             to committed batches  {:6.0} images/s, {:.2} of it (goal 0.8; {:.2} by CPU time)\n\
             to a trainer          {:6.0} images/s with the producer, {:.0} of the stored stream\n\
             {dataloader}\n\
             memory                {:.1} MiB after a quarter, {:.1} MiB at the end\n",
            self.images,
            self.jpeg_bytes as f64 / f64::from(self.images.max(1)) / 1e3,
            self.cores,
            self.decoder_images_per_second,
            self.images_per_second,
            self.ratio_to_decoder,
            self.ratio_of_cpu,
            self.live_images_per_second,
            self.stored_images_per_second,
            mib(self.quarter_rss_bytes),
            mib(self.end_rss_bytes),
        )
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(dataloader: Option<f64>, missing: Option<String>) -> ImagesReport {
        let args = ImagesArgs {
            python: "python3".into(),
            images: 1000,
            rounds: 3,
        };
        let rounds = [8.0, 5.0, 4.0].map(|ingest| Round {
            decoder: 4.0,
            decoder_cpu: 8.0,
            ingest,
            ingest_cpu: 10.0,
            live: 10.0,
            stored: 1.0,
            dataloader,
            quarter_rss_bytes: 100 << 20,
            end_rss_bytes: 101 << 20,
        });
        let made = Made {
            jpeg_bytes: 50_000_000,
        };
        report(&args, made, 0.1, missing, rounds.into())
    }

    #[test]
    fn rates_and_ratios_match_the_rounds() {
        let report = made_up(Some(20.0), None);
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        near(report.decoder_images_per_second, 250.0);
        near(report.images_per_second, 200.0);
        near(report.ratio_to_decoder, 0.8);
        near(report.ratio_of_cpu, 0.8);
        near(report.live_images_per_second, 100.0);
        assert_eq!(report.dataloader_images_per_second, Some(50.0));
        assert_eq!(report.ratio_to_dataloader, Some(2.0));
        assert_eq!(report.stored_ratio_to_dataloader, Some(20.0));
        let text = report.text();
        assert!(
            text.contains("0.80 of it (goal 0.8; 0.80 by CPU time)"),
            "{text}"
        );
        assert!(text.contains("2.00 times as fast"), "{text}");
        assert!(
            text.contains("100.0 MiB after a quarter, 101.0 MiB"),
            "{text}"
        );
    }

    #[test]
    fn a_dataloader_that_was_not_measured_is_said() {
        let report = made_up(None, Some("torch".to_owned()));
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["ratio_to_dataloader"].is_null());
        assert_eq!(json["missing"], "torch");
        let text = report.text();
        assert!(
            text.contains("not measured: torch is not installed"),
            "{text}"
        );
    }
}
