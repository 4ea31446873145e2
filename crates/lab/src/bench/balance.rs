//! `bench balance`: how even global batches are that are arranged by cost, over random documents with the lengths of real
//! corpora, beside rows of `best_fit` and a balancer that sees one step.

mod lengths;
mod measures;
mod plot;
mod rivals;
mod text;
mod variants;
mod windows;

use std::path::PathBuf;

use batchweave_console::CliError;
use batchweave_core::balance::BalanceSettings;
use clap::Args;
use serde::Serialize;

use self::lengths::{Corpus, Documents};
use self::measures::{Figures, Measures, StepCosts};
use self::windows::Windows;
use crate::error::bench_error;

/// The corpora that are compared with other means. The first one is drawn.
const CORPORA: [Corpus; 5] = [
    Corpus::Sft,
    Corpus::Web,
    Corpus::CodeBooks,
    Corpus::Captions,
    Corpus::SftImages,
];

#[derive(Debug, Clone, Args)]
pub(crate) struct BalanceArgs {
    /// Slices of a batch
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    slices: u32,
    /// Bins per slice and step
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    micro_batches: u32,
    /// Capacity of a bin
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    tokens: u32,
    /// Batches that are arranged together
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    window: u32,
    /// Steps of each corpus, rounded up to whole windows
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Steps of the other means, which take longer
    #[arg(long, value_name = "STEPS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    beside: u32,
    /// Length at which attention costs as much as the rest
    #[arg(long, value_name = "TOKENS", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    crossover: u32,
    /// Seed of the documents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the imbalance of each step of the first corpus, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
pub(crate) struct BalanceReport {
    slices: u32,
    micro_batches: u32,
    tokens: u32,
    window: u32,
    crossover: u32,
    seed: u64,
    corpora: Vec<CorpusReport>,
    mixture: variants::MixtureReport,
    /// Other shapes, windows and documents, without goals.
    variants: Vec<variants::VariantReport>,
}

/// The figures of one corpus.
#[derive(Debug, Serialize)]
struct CorpusReport {
    corpus: &'static str,
    #[serde(flatten)]
    balanced: BalancedFigures,
    /// The other means. Rows of a greedy balancer are whole slices.
    best_fit: Figures,
    greedy: Figures,
    /// Time of all steps of the other means, over that of balanced ones.
    best_fit_time_ratio: f64,
    greedy_time_ratio: f64,
}

/// The figures of balanced batches.
#[derive(Debug, Clone, Serialize)]
struct BalancedFigures {
    steps: usize,
    #[serde(flatten)]
    figures: Figures,
    late_windows_max: u32,
    /// Of arranging alone, on one core.
    tokens_per_second: f64,
}

pub(crate) async fn measure(args: &BalanceArgs) -> Result<BalanceReport, CliError> {
    let args = args.clone();
    let measured = tokio::task::spawn_blocking(move || report(&args));
    measured.await.map_err(bench_error)?
}

fn report(args: &BalanceArgs) -> Result<BalanceReport, CliError> {
    let settings = settings(args);
    let mut corpora = Vec::new();
    for corpus in CORPORA {
        corpora.push(compare(args, &settings, corpus)?);
    }
    Ok(BalanceReport {
        slices: args.slices,
        micro_batches: args.micro_batches,
        tokens: args.tokens,
        window: args.window,
        crossover: args.crossover,
        seed: args.seed,
        corpora,
        mixture: variants::mixture(args, &settings)?,
        variants: variants::measure(args, &settings)?,
    })
}

fn settings(args: &BalanceArgs) -> BalanceSettings {
    BalanceSettings {
        slices: args.slices,
        micro_batches: args.micro_batches,
        tokens: args.tokens,
        window: args.window,
        by_cost: false,
    }
}

/// Returns the documents of a corpus, the same for all means.
fn documents(args: &BalanceArgs, corpus: Corpus) -> Result<Documents, CliError> {
    Documents::new(corpus, args.seed, f64::from(args.crossover), args.tokens)
}

fn compare(
    args: &BalanceArgs,
    settings: &BalanceSettings,
    corpus: Corpus,
) -> Result<CorpusReport, CliError> {
    let steps = args.beside as usize;
    let best_fit = rivals::best_fit(settings, &mut documents(args, corpus)?, steps)?;
    let greedy = rivals::greedy(settings, &mut documents(args, corpus)?, steps)?;
    let [best_fit, greedy] = [best_fit, greedy].map(|steps| measured(&steps, settings.window));
    let (balanced, measures) = balanced(args, settings, documents(args, corpus)?)?;
    if let Some(path) = args.plot.as_ref().filter(|_| corpus == CORPORA[0]) {
        let ways = [
            ("best_fit", best_fit.slices()),
            ("greedy", greedy.slices()),
            ("balanced", measures.slices()),
        ];
        std::fs::write(path, plot::svg(ways))?;
    }
    let [best_fit, greedy] = [best_fit, greedy].map(Measures::figures);
    Ok(CorpusReport {
        corpus: corpus.name(),
        best_fit_time_ratio: best_fit.time / balanced.figures.time,
        greedy_time_ratio: greedy.time / balanced.figures.time,
        balanced,
        best_fit,
        greedy,
    })
}

/// Measures steps in groups of as many as a window has.
fn measured(steps: &[StepCosts], window: u32) -> Measures {
    let mut measures = Measures::default();
    steps
        .chunks(window as usize)
        .for_each(|window| measures.add(window));
    measures
}

/// Arranges documents until there are enough steps.
fn balanced(
    args: &BalanceArgs,
    settings: &BalanceSettings,
    mut documents: Documents,
) -> Result<(BalancedFigures, Measures), CliError> {
    let settings = BalanceSettings {
        by_cost: documents.model().counts_arrays(),
        ..*settings
    };
    let (mut windows, mut measures) = (Windows::new(settings), Measures::default());
    while windows.steps < args.steps as usize {
        let window = windows.next(|| {
            let raw = documents.draw();
            Ok((documents.pieces(raw)?, 0))
        })?;
        measures.add(&window.costs(&settings));
    }
    let balanced = BalancedFigures {
        steps: windows.steps,
        figures: measures.clone().figures(),
        late_windows_max: windows.late_max,
        tokens_per_second: windows.tokens as f64 / windows.time.as_secs_f64(),
    };
    Ok((balanced, measures))
}
