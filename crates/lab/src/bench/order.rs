//! `bench order`: how well the order of documents shuffles, how exact the shares of a mixture are, and the size of the
//! sampler's state, over synthetic documents; and, on request, the speed, reads and restarts of producers.

mod corpus;
mod daemons;
mod plot;
mod restart;
mod rows;
mod speed;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use batchweave_core::cursor::Cursor;
use batchweave_core::order::synthetic::{Neighbours, SyntheticFiles, SyntheticForm};
use batchweave_core::order::{
    Portion, Position, Sampler, SamplerOptions, SamplerState, ShareUnit, Shuffle, SourceOrder,
    Walk, Weight, WhenSourceEnds, weights,
};
use batchweave_daemon::config::ByteSize;
use clap::Args;
use serde::Serialize;

use crate::error::bench_error;
use batchweave_console::CliError;

/// The weights of the measured mixture.
const WEIGHTS: [f64; 3] = [0.6, 0.3, 0.1];
/// Rows of a row group.
const GROUP_ROWS: u64 = 1000;
/// The tail is this part of a pass, from its end.
const TAIL: u64 = 50;
/// Bytes of the state in a cursor: these, and these per source.
const CURSOR_BYTES: [usize; 2] = [64, 48];

#[derive(Debug, Clone, Args)]
pub(crate) struct OrderArgs {
    /// Files of each source
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    files: u32,
    /// Documents of each file
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    documents: u64,
    /// Mean size of a document
    #[arg(long, default_value = "1KiB")]
    document_bytes: ByteSize,
    /// Documents that are shuffled among themselves
    #[arg(long, default_value = "128MiB")]
    window: ByteSize,
    /// Tokens after which the error of the shares counts; twice as many are drawn
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    tokens: u64,
    /// Producers that share the sources; the first of them is measured
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    producers: u32,
    /// Seed of the orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the shares of a run whose mixture changes in the middle, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Batches of 128 rows of 2,048 tokens that are measured with packing.shuffle_rows
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(50..=100_000))]
    rows_batches: u64,
    /// Tokens of a window of these rows
    #[arg(long, value_name = "TOKENS", default_value_t = 8 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    rows_window: u64,
    /// Also run producers: their speed with a shuffled source over that with the same input in order, and the bytes
    /// that 16 of them read together
    #[arg(long)]
    speed: bool,
    /// Text of these producers
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
    /// Also measure the time from a place in the middle of one file to the next document
    #[arg(long)]
    restart: bool,
    /// Size of that file, before compression
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    restart_bytes: ByteSize,
    /// Measurements of speeds and restarts; the report has medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct OrderReport {
    files: u32,
    documents: u64,
    document_bytes: u64,
    window: u64,
    producers: u32,
    seed: u64,
    /// Of files of lines: the share of neighbours from one file, over that of a perfect shuffle.
    neighbours_same_file_ratio: f64,
    /// The same over the last 2 % of the pass.
    tail_quality: f64,
    forms: Vec<FormReport>,
    /// The largest difference of a source's share from its weight after `tokens` tokens.
    share_error_max: f64,
    tokens: u64,
    /// The largest stored state of the mixture's three sources, and the allowed size.
    cursor_bytes: usize,
    cursor_bytes_allowed: usize,
    shuffle_rows: rows::RowsReport,
    #[serde(flatten)]
    speed: Option<speed::SpeedReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restarts: Option<restart::RestartReport>,
}

/// The quality of the shuffle for files of one form.
#[derive(Debug, Serialize)]
struct FormReport {
    form: &'static str,
    blocks: u64,
    /// Blocks that are open at the same time.
    open_blocks: u64,
    neighbours_same_file_ratio: f64,
    tail_quality: f64,
    documents_per_second: f64,
}

/// The forms of files, with their names in the report.
const FORMS: [(&str, SyntheticForm); 3] = [
    ("lines", SyntheticForm::Lines),
    ("row groups", SyntheticForm::RowGroups(GROUP_ROWS)),
    ("compressed", SyntheticForm::Compressed),
];

pub(crate) async fn measure(args: &OrderArgs) -> Result<OrderReport, CliError> {
    let own = args.clone();
    let measured = tokio::task::spawn_blocking(move || synthetic(&own));
    let mut report = measured.await.map_err(bench_error)??;
    if args.speed {
        report.speed = Some(Box::pin(speed::measure(args)).await?);
    }
    if args.restart {
        report.restarts = Some(restart::measure(args).await?);
    }
    Ok(report)
}

/// Measures what needs no producer.
fn synthetic(args: &OrderArgs) -> Result<OrderReport, CliError> {
    let mut forms = Vec::new();
    for (name, form) in FORMS {
        forms.push(quality(args, name, form));
    }
    let (share_error_max, cursor_bytes) = shares(args)?;
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(args)?)?;
    }
    let (lines, tail) = (&forms[0].neighbours_same_file_ratio, &forms[0].tail_quality);
    Ok(OrderReport {
        files: args.files,
        documents: args.documents,
        document_bytes: args.document_bytes.bytes(),
        window: args.window.bytes(),
        producers: args.producers,
        seed: args.seed,
        neighbours_same_file_ratio: *lines,
        tail_quality: *tail,
        forms,
        share_error_max,
        tokens: args.tokens,
        cursor_bytes,
        shuffle_rows: rows::measure(args)?,
        cursor_bytes_allowed: CURSOR_BYTES[0] + CURSOR_BYTES[1] * WEIGHTS.len(),
        speed: None,
        restarts: None,
    })
}

fn files(args: &OrderArgs, form: SyntheticForm, mean: u64) -> SyntheticFiles {
    let mut files = SyntheticFiles::default();
    for _ in 0..args.files {
        files.add(form, args.documents, mean);
    }
    files
}

fn order(args: &OrderArgs, name: &str, files: &SyntheticFiles) -> SourceOrder {
    let shuffle = Shuffle {
        seed: args.seed,
        window: args.window.bytes(),
    };
    let portion = Portion {
        index: 0,
        of: args.producers,
    };
    SourceOrder::new(name, files.blocks(), Some(shuffle), portion)
}

/// Walks one pass of a source.
fn quality(args: &OrderArgs, name: &'static str, form: SyntheticForm) -> FormReport {
    let files = files(args, form, args.document_bytes.bytes());
    let order = order(args, name, &files);
    let began = std::time::Instant::now();
    let mut walk = Walk::new(&order, &files, 1, Position::default());
    let mut given = Vec::new();
    while let Some((_, document)) = walk.next_document().unwrap_or_else(|never| match never {}) {
        given.push(document.file);
    }
    let seconds = began.elapsed().as_secs_f64();
    let documents = files.documents();
    let ratio = |files: &[u32]| {
        let mut neighbours = Neighbours::default();
        for file in files {
            neighbours.push(*file);
        }
        neighbours.ratio(&documents)
    };
    let tail = given.len() - given.len() / TAIL as usize;
    FormReport {
        form: name,
        blocks: order.blocks().len(),
        open_blocks: order.open_blocks(),
        neighbours_same_file_ratio: ratio(&given),
        tail_quality: ratio(&given[tail..]),
        documents_per_second: given.len() as f64 / seconds,
    }
}

/// Draws from three sources, and returns the largest error of a share and the largest stored state.
fn shares(args: &OrderArgs) -> Result<(f64, usize), CliError> {
    let (mut error, mut bytes) = (0.0_f64, 0);
    draw(args, BTreeMap::new(), |state, _, _| {
        if state.total[1] >= args.tokens {
            let of = |given: u64| given as f64 / state.total[1] as f64;
            let shares = state.at.iter().map(|source| of(source.given));
            let errors = shares.zip(WEIGHTS).map(|(is, wanted)| (is - wanted).abs());
            error = errors.fold(error, f64::max);
        }
        if state.total[0].is_multiple_of(64) {
            bytes = bytes.max(Cursor(state.to_json()).bytes().len());
        }
    })?;
    Ok((error, bytes))
}

/// Draws twice `args.tokens` tokens from three sources. With a mixture it changes to it in the middle. `each` gets the
/// state after a document, its source and its tokens.
fn draw(
    args: &OrderArgs,
    mixtures: BTreeMap<u64, Vec<Weight>>,
    mut each: impl FnMut(&SamplerState, usize, u64),
) -> Result<(), CliError> {
    let mean = args.document_bytes.bytes();
    // Documents of very different sizes: code is long, mathematics is short.
    let sources: Vec<(SyntheticFiles, &str)> = FORMS
        .into_iter()
        .zip([mean, 8 * mean, mean / 4 + 1])
        .map(|((name, form), mean)| (files(args, form, mean), name))
        .collect();
    let orders: Vec<SourceOrder> = sources
        .iter()
        .map(|(files, name)| order(args, name, files))
        .collect();
    let mut walks: Vec<_> = orders
        .iter()
        .zip(&sources)
        .map(|(order, (files, _))| Walk::new(order, files, 0, Position::default()))
        .collect();
    let change = mixtures.keys().next_back().copied();
    let options = SamplerOptions {
        weights: weights(&WEIGHTS).map_err(bench_error)?,
        mixtures,
        passes: vec![0; WEIGHTS.len()],
        unit: ShareUnit::Tokens,
        when_source_ends: WhenSourceEnds::GoOn,
        limit: None,
    };
    let mut sampler = Sampler::new(options, SamplerState::start(WEIGHTS.len()));
    while sampler.state().total[1] < 2 * args.tokens {
        let Some(source) = sampler.next() else { break };
        let Ok(next) = walks[source].next_document();
        let Some((at, document)) = next else {
            sampler.end(source);
            continue;
        };
        sampler.give(source, at.after(), Some(document.tokens()));
        each(sampler.state(), source, document.tokens());
        if let Some(change) = change.filter(|_| sampler.state().total[1] >= args.tokens) {
            sampler.change(change);
        }
    }
    Ok(())
}

impl OrderReport {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} files of {} documents, windows of {}, producer 0 of {}\n",
            self.files,
            self.documents,
            ByteSize(self.window),
            self.producers
        );
        text.push_str("files         blocks  open  same file over ideal  in the last 2 %\n");
        for form in &self.forms {
            let _ = writeln!(
                text,
                "{:<10} {:>9} {:>5} {:>21.2} {:>16.2}",
                form.form,
                form.blocks,
                form.open_blocks,
                form.neighbours_same_file_ratio,
                form.tail_quality
            );
        }
        let _ = writeln!(
            text,
            "shares     {:.5} off at most, from {} tokens on\n\
             cursor     {} bytes for three sources, of {} allowed",
            self.share_error_max, self.tokens, self.cursor_bytes, self.cursor_bytes_allowed
        );
        self.shuffle_rows.text(&mut text);
        if let Some(speed) = &self.speed {
            speed.text(&mut text);
        }
        if let Some(restarts) = &self.restarts {
            restarts.text(&mut text);
        }
        text
    }
}
