//! The estimate of `--check` for bins of equal cost: what a window of documents of these lengths gives, beside rows.
//!
//! Sampled documents stand for the input: a window is drawn from them in turns, by the weights of their sources.

use std::fmt::Write as _;

use batchweave_core::balance::{self, BalanceSettings};
use batchweave_daemon::check::Findings;
use batchweave_daemon::figures::short;

use super::balance_rows::{Costs, best_fit, concat};
use super::drawn::Drawn;
use crate::config::ProducerConfig;
use crate::packing::Balancing;
use crate::transform::DocumentTransform;

/// Most tokens that are drawn for the estimate.
const TOKENS_MAX: u64 = 1 << 25;

/// The size of a sampled document.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Size {
    /// With the end token.
    pub(super) tokens: u32,
    /// Tokens of the second answer of a pair.
    pub(super) second: u32,
    /// Bytes of each of its arrays.
    pub(super) arrays: Vec<u64>,
}

/// The sampled documents of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sizes {
    pub(super) documents: Vec<Size>,
    /// Time in seconds that one thread took to make them.
    pub(super) seconds: f64,
}

/// Reports what the first window gives.
pub(super) fn report(
    config: &ProducerConfig,
    transform: &DocumentTransform,
    sources: &[Sizes],
    findings: &mut Findings,
) {
    let Some(balancing) = transform.balancing() else {
        return;
    };
    let Some(estimate) = Estimate::new(config, balancing, sources) else {
        return;
    };
    findings.opened("balance", estimate.steps());
    findings.opened("likeness", estimate.likeness(config));
    findings.opened("first batch", Estimate::first_batch(config, sources));
}

/// The figures of a window.
struct Estimate {
    settings: BalanceSettings,
    /// Number of the sampled documents, and of those of the window.
    sampled: usize,
    drawn: usize,
    fill: f64,
    /// Time of a step over the ideal: in bins, and in rows of `best_fit` and `concat`.
    time: [f64; 3],
    carried: usize,
    /// By batch: the share of each source's tokens, and the mean length.
    shares: Vec<Vec<f64>>,
    lengths: Vec<f64>,
}

impl Estimate {
    fn new(config: &ProducerConfig, balancing: &Balancing, sources: &[Sizes]) -> Option<Self> {
        let settings = within(balancing.settings);
        let drawn = draw(config, balancing, &settings, sources)?;
        let sizes: Vec<balance::Document> = drawn
            .iter()
            .map(|document| balance::Document {
                tokens: document.tokens,
                cost: document.cost,
                carried: false,
            })
            .collect();
        let made = balance::arrange(&settings, &sizes, 0).ok()?;
        let mut costs = Costs::default();
        let (mut shares, mut lengths, mut tokens) = (Vec::new(), Vec::new(), 0_u64);
        for batch in &made.batches {
            costs.add(batch.cost.max as f64, batch.cost.mean as f64);
            let all = (0..batch.slices()).flat_map(|slice| {
                (0..batch.micro_batches()).flat_map(move |bin| batch.bin(slice, bin))
            });
            let mut of_sources = vec![0_u64; sources.len()];
            let mut count = 0_u64;
            for document in all.map(|index| &drawn[*index as usize]) {
                of_sources[document.source] += u64::from(document.tokens);
                count += 1;
            }
            let sum: u64 = of_sources.iter().sum();
            tokens += sum;
            let share = |of: &u64| *of as f64 / sum.max(1) as f64;
            shares.push(of_sources.iter().map(share).collect());
            lengths.push(sum as f64 / count.max(1) as f64);
        }
        let room = made.batches.len() * settings.bins();
        Some(Self {
            settings,
            sampled: sources.iter().map(|source| source.documents.len()).sum(),
            drawn: made.taken,
            fill: tokens as f64 / (room as f64 * f64::from(settings.tokens)),
            time: [
                costs.time(),
                best_fit(&settings, &balancing.cost, &drawn)?,
                concat(&settings, &balancing.cost, &drawn)?,
            ],
            carried: made.carried.len(),
            shares,
            lengths,
        })
    }

    fn steps(&self) -> String {
        let [bins, best_fit, concat] = self.time;
        let settings = &self.settings;
        format!(
            "a step takes {bins:.3} times the ideal, with rows of best_fit {best_fit:.2}, of concat {concat:.2}; bins are {:.1} % \
             full, {} of {} documents wait for the next window (window of {} batches of {} x {} bins, drawn from {} documents)",
            100.0 * self.fill,
            self.carried,
            self.drawn,
            settings.window,
            settings.slices,
            settings.micro_batches,
            self.sampled
        )
    }

    /// Describes how unlike the batches are.
    fn likeness(&self, config: &ProducerConfig) -> String {
        let (least, most) = range(self.lengths.iter().copied());
        let mut text =
            format!("documents of a batch have {least:.0} to {most:.0} tokens on average");
        for (number, source) in config.sources.iter().enumerate() {
            let (least, most) = range(self.shares.iter().map(|shares| shares[number]));
            let _ = write!(
                text,
                "; {} has {:.0} to {:.0} % of its tokens",
                source.name,
                100.0 * least,
                100.0 * most
            );
        }
        text
    }

    /// Describes the time until the first batch, which waits for its whole window.
    fn first_batch(config: &ProducerConfig, sources: &[Sizes]) -> String {
        let all = || sources.iter().flat_map(|source| &source.documents);
        let tokens: u64 = all()
            .map(|size| u64::from(size.tokens) + u64::from(size.second))
            .sum();
        let seconds: f64 = sources.iter().map(|source| source.seconds).sum();
        let rate = tokens as f64 / seconds.max(1e-6) * config.document_threads() as f64;
        let window = config.shape().tokens() as f64 * f64::from(config.packing.balanced.window);
        format!(
            "after about {:.0} s at the start and after a restart: it waits for a window of {} tokens, which {} threads make at \
             {} tokens/s",
            (window / rate).ceil(),
            short(window),
            config.document_threads(),
            short(rate)
        )
    }
}

/// Returns the settings with a window of at most the tokens of the estimate.
fn within(settings: BalanceSettings) -> BalanceSettings {
    let batch = settings.bins() as u64 * u64::from(settings.tokens);
    let most = (TOKENS_MAX / batch.max(1)).clamp(1, settings.window.into());
    BalanceSettings {
        window: u32::try_from(most).unwrap_or(settings.window),
        ..settings
    }
}

/// Draws documents until a window is full. `None` without documents.
fn draw(
    config: &ProducerConfig,
    balancing: &Balancing,
    settings: &BalanceSettings,
    sources: &[Sizes],
) -> Option<Vec<Drawn>> {
    let weight = |source: usize| config.sources.get(source).map_or(1.0, |own| own.weight);
    let has_tokens = |sizes: &Sizes| sizes.documents.iter().any(|size| size.tokens > 0);
    let given: Vec<usize> = (0..sources.len())
        .filter(|n| weight(*n) > 0.0 && has_tokens(&sources[*n]))
        .collect();
    let mut taken = vec![(0_u64, 0_usize); sources.len()];
    let mut drawn = Vec::new();
    let mut fill = balance::WindowFill::new(settings);
    while !fill.is_full() {
        let behind = |a: &&usize, b: &&usize| {
            let of = |n: usize| taken[n].0 as f64 / weight(n);
            of(**a).total_cmp(&of(**b))
        };
        let source = *given.iter().min_by(behind)?;
        let (tokens, next) = &mut taken[source];
        let documents = &sources[source].documents;
        let size = &documents[*next % documents.len()];
        *next += 1;
        for piece in pieces(balancing, source, size)? {
            *tokens += u64::from(piece.tokens);
            fill.take(&balance::Document {
                tokens: piece.tokens,
                cost: piece.cost,
                carried: false,
            });
            drawn.push(piece);
        }
    }
    Some(drawn)
}

/// Returns the pieces of a document; both answers of a pair are one.
fn pieces(balancing: &Balancing, source: usize, size: &Size) -> Option<Vec<Drawn>> {
    let most = balancing.settings.tokens;
    let items = size.arrays.iter().zip(&balancing.item_bytes);
    let items: Vec<u32> = items
        .map(|(bytes, item)| u32::try_from(bytes / (*item).max(1)).unwrap_or(u32::MAX))
        .collect();
    let cost = |tokens| balancing.cost.cost(tokens, &items).ok();
    let mut all = Vec::new();
    let mut left = size.tokens;
    loop {
        let tokens = left.min(most);
        let second = if size.second > 0 {
            cost(size.second)?
        } else {
            0
        };
        all.push(Drawn {
            source,
            tokens: (tokens + size.second).min(most),
            cost: cost(tokens)? + second,
        });
        if left <= most {
            return Some(all);
        }
        left -= most - 1;
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (value.min(least), value.max(most))
    })
}
