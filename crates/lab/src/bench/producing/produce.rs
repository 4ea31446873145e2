//! `bench produce`: the whole producer, from documents on disk to committed batches on `dev-s3`, compared
//! with the tokenizer alone on the same cores.
//!
//! Both sides start with a loaded tokenizer with an empty cache and end with the last token, here with the
//! record that commits it. The server is a separate process; the CPU time that it takes from the producer's
//! cores is measured and subtracted, and the ratio without that is reported too.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use batchweave_console::CliError;
use batchweave_daemon::config::ByteSize;
use batchweave_producer::config::{ProducerConfig, ShuffleConfig};
use batchweave_producer::{Outcome, run_watched};
use batchweave_store::Store;
use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Measured, Text, TextArgs, alone, config, mb};
use crate::bench::cpu::{cores, in_turns, median, process_seconds};
use crate::bench::server::Server;
use crate::error::bench_error;

#[derive(Debug, Clone, Args)]
pub(crate) struct ProduceArgs {
    #[command(flatten)]
    text: TextArgs,
    /// Slices in a batch
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    slices: u32,
    /// Rows in a slice
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65536))]
    rows_per_slice: u32,
    /// Tokens that a row advances by; each takes four bytes
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    seq_len: u32,
    /// Also measure the same text in shuffled order, with windows of this size
    #[arg(long, value_name = "WINDOW")]
    shuffle: Option<ByteSize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProduceReport {
    encoding: &'static str,
    cores: usize,
    documents: u64,
    text_bytes: u64,
    tokens: u64,
    batches: u64,
    /// Bytes of text per second of wall time.
    batches_per_second: f64,
    /// The same for the tokenizer alone, from memory.
    limit_bytes_per_second: f64,
    /// Ratio of the rates, with the server's CPU time, spread over the cores, subtracted.
    bytes_per_second: f64,
    ratio_to_tokenizer: f64,
    /// Ratio of the rates by wall time alone: the server's use of the cores counts against the producer.
    ratio_with_server: f64,
    /// CPU time of the tokenizer alone divided by that of the producer.
    ratio_of_cpu: f64,
    /// Ratio of the rates of shuffled and ordered text by wall time; with `--shuffle`.
    shuffled_over_ordered_speed: Option<f64>,
    /// Seconds from the first document to the last commit.
    wall_seconds: f64,
    cpu_seconds: f64,
    server_cpu_seconds: f64,
    /// Seconds before that: loading the tokenizer, opening stream and producer.
    start_seconds: f64,
}

struct Round {
    limit: Measured,
    ours: Ours,
    shuffled: Option<Ours>,
}

/// A run of a producer in this process, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Ours {
    /// From the first document to the last commit.
    pub(super) wall: f64,
    pub(super) cpu: f64,
    /// CPU time of the server; 0 without one.
    pub(super) server: f64,
    /// Before that: opening the stream, finding and pinning files.
    pub(super) start: f64,
    pub(super) batches: u64,
}

impl Round {
    fn seconds(&self) -> f64 {
        self.ours.wall - self.ours.server / cores() as f64
    }
}

pub(crate) async fn measure(args: &ProduceArgs) -> Result<ProduceReport, CliError> {
    let text = Text::new(args.text.mib)?;
    let mut config = config(&text);
    config.stream.slices = args.slices;
    config.stream.rows_per_slice = args.rows_per_slice;
    config.stream.seq_len = args.seq_len;
    let shuffled = args.shuffle.map(|window| {
        let mut shuffled = config.clone();
        shuffled.source.shuffle = Some(ShuffleConfig { seed: 1, window });
        shuffled
    });
    let mut rounds = Vec::new();
    for n in 0..args.text.rounds {
        let limit = async || alone(&text.documents);
        let (limit, ours) = in_turns(n, limit, async || run(&text, &config).await).await?;
        let shuffled = match &shuffled {
            Some(shuffled) => Some(run(&text, shuffled).await?),
            None => None,
        };
        rounds.push(Round {
            limit,
            ours,
            shuffled,
        });
    }
    let bytes = text.bytes as f64;
    let last = rounds.last().map(|round| (round.limit.tokens, round.ours));
    let (tokens, ours) = last.ok_or_else(|| bench_error("no round"))?;
    Ok(ProduceReport {
        encoding: "cl100k_base",
        cores: cores(),
        documents: text.documents.len() as u64,
        text_bytes: text.bytes,
        tokens,
        batches: ours.batches,
        batches_per_second: median(&rounds, |r| r.ours.batches as f64 / r.ours.wall),
        limit_bytes_per_second: median(&rounds, |r| bytes / r.limit.wall),
        bytes_per_second: median(&rounds, |r| bytes / r.seconds()),
        ratio_to_tokenizer: median(&rounds, |r| r.limit.wall / r.seconds()),
        ratio_with_server: median(&rounds, |r| r.limit.wall / r.ours.wall),
        ratio_of_cpu: median(&rounds, |r| r.limit.cpu / r.ours.cpu),
        shuffled_over_ordered_speed: args.shuffle.map(|_| {
            let shuffled = |r: &Round| r.shuffled.map_or(f64::NAN, |s| s.wall);
            median(&rounds, |r| r.ours.wall / shuffled(r))
        }),
        wall_seconds: median(&rounds, |r| r.ours.wall),
        cpu_seconds: median(&rounds, |r| r.ours.cpu),
        server_cpu_seconds: median(&rounds, |r| r.ours.server),
        start_seconds: median(&rounds, |r| r.ours.start),
    })
}

async fn run(text: &Text, config: &ProducerConfig) -> Result<Ours, CliError> {
    let server = Arc::new(Server::start(text.folder()).await?);
    let store = Arc::new(server.store("stream").await?);
    until_finished(store, config, Some(server)).await
}

/// Runs a producer on `store` until all its input is committed; `server` is the process of the store, if it has one.
pub(super) async fn until_finished(
    store: Arc<dyn Store>,
    config: &ProducerConfig,
    server: Option<Arc<Server>>,
) -> Result<Ours, CliError> {
    let used = move || {
        let served = server.as_ref().map_or(Ok(0.0), |server| server.cpu());
        Ok::<_, CliError>((process_seconds("self")?, served?))
    };
    let first = Arc::new(OnceLock::new());
    let began = {
        let (first, used) = (Arc::clone(&first), used.clone());
        move || {
            let _ = first.set((Instant::now(), used()));
        }
    };
    let opening = Instant::now();
    let stop = CancellationToken::new();
    let outcome = run_watched(store, config.clone(), stop, Box::new(began)).await;
    let Outcome::Finished { batches } = outcome.map_err(bench_error)? else {
        return Err(bench_error("the producer stopped unexpectedly"));
    };
    let (own, served) = used()?;
    let (at, cpu) = first
        .get()
        .ok_or_else(|| bench_error("the producer did not start"))?;
    let Ok((own_before, served_before)) = cpu else {
        return Err(bench_error("the kernel reports no CPU time of processes"));
    };
    Ok(Ours {
        wall: at.elapsed().as_secs_f64(),
        cpu: own - own_before,
        server: served - served_before,
        start: at.duration_since(opening).as_secs_f64(),
        batches,
    })
}

impl ProduceReport {
    pub(crate) fn text(&self) -> String {
        let shuffled = self
            .shuffled_over_ordered_speed
            .map_or_else(String::new, |ratio| {
                format!("shuffled                    {ratio:.2} of that rate\n")
            });
        format!(
            "{} documents, {:.1} MB, {} tokens of {}, {} cores, {} batches ({:.0} per second)\n\
             the tokenizer alone         {}\n\
             from documents to the log   {}, {:.2} of it ({:.2} with the S3 server on the same cores; {:.2} by CPU time)\n\
             in {:.2} s after {:.2} s to start; CPU time {:.2} s, and {:.2} s of the S3 server\n{shuffled}",
            self.documents,
            self.text_bytes as f64 / 1e6,
            self.tokens,
            self.encoding,
            self.cores,
            self.batches,
            self.batches_per_second,
            mb(self.limit_bytes_per_second),
            mb(self.bytes_per_second),
            self.ratio_to_tokenizer,
            self.ratio_with_server,
            self.ratio_of_cpu,
            self.wall_seconds,
            self.start_seconds,
            self.cpu_seconds,
            self.server_cpu_seconds,
        )
    }
}
