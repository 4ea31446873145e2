//! Rows in shuffled order (`packing.shuffle_rows`): how often neighbouring rows of a batch are of one document, and how far the
//! shares of sources in neighbouring batches are from the wanted ones, beside rows in the order in which they were packed.

use std::collections::VecDeque;
use std::fmt::Write as _;

use batchweave_console::CliError;
use batchweave_producer::packing::{
    AddedTokens, Batches, Concat, Content, Document, PackedBatch, Packer, Restart, RowShuffle,
    Shape, ShuffledRows, Within,
};
use batchweave_producer::sources::Place;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::OrderArgs;
use crate::error::bench_error;

/// Rows of a batch, and their tokens.
const SHAPE: Shape = Shape {
    slices: 128,
    rows_per_slice: 1,
    seq_len: 2048,
};
/// The wanted shares of both sources.
const WEIGHTS: [f64; 2] = [0.7, 0.3];
/// One document in this number is long.
const LONG_EVERY: u64 = 100;
const LONG_TOKENS: usize = 80_000;
/// Tokens of other documents, at least and at most.
const SHORT_TOKENS: std::ops::RangeInclusive<usize> = 100..=1100;
/// Neighbouring batches whose shares are compared with the wanted ones.
const BATCHES: usize = 50;
/// Random orders of a window's rows that stand for a perfect shuffle.
const ORDERS: usize = 16;

/// The quality of the order of rows.
#[derive(Debug, Serialize)]
pub(super) struct RowsReport {
    batches: u64,
    /// Tokens of a window.
    window: u64,
    /// Share of neighbouring rows of one document, over that of a perfect shuffle of the window.
    neighbours_same_document_ratio: f64,
    /// The same of rows in the order in which they were packed.
    packed_neighbours_same_document_ratio: f64,
    /// The largest difference of a source's share in 50 neighbouring batches from the wanted one.
    given_share_error_max: f64,
    packed_given_share_error_max: f64,
}

/// The documents of a row, by their numbers, and the tokens of each source.
#[derive(Debug, Clone, Default)]
struct Row {
    documents: Vec<u64>,
    tokens: [u64; 2],
}

pub(super) fn measure(args: &OrderArgs) -> Result<RowsReport, CliError> {
    let shuffle = RowShuffle {
        seed: args.seed,
        tokens: args.rows_window,
        together: 1,
    };
    let packed = rows(args, None)?;
    let shuffled = rows(args, Some(shuffle))?;
    let window = (args.rows_window.div_ceil(SHAPE.tokens() as u64).max(2) as usize) * SHAPE.rows();
    let ideal = ideal(&packed, window, args.seed);
    let ratio = |rows: &[Row]| neighbours(rows) / ideal.max(f64::MIN_POSITIVE);
    Ok(RowsReport {
        batches: args.rows_batches,
        window: args.rows_window,
        neighbours_same_document_ratio: ratio(&shuffled),
        packed_neighbours_same_document_ratio: ratio(&packed),
        given_share_error_max: share_error(&shuffled),
        packed_given_share_error_max: share_error(&packed),
    })
}

/// Packs documents of both sources, as the largest deficit orders them, into rows.
fn rows(args: &OrderArgs, shuffle: Option<RowShuffle>) -> Result<Vec<Row>, CliError> {
    let added = AddedTokens { end: 0, pad: 0 };
    let inner = Box::new(Concat::new(SHAPE, added, Restart::default().at, false));
    let mut packer: Box<dyn Packer> = match shuffle {
        Some(shuffle) => {
            let batches = Batches::from_start(SHAPE, SHAPE.slices);
            Box::new(ShuffledRows::new(
                inner,
                shuffle,
                batches,
                Restart::default(),
            ))
        }
        None => inner,
    };
    let mut random = StdRng::seed_from_u64(args.seed);
    let wanted = args.rows_batches as usize * SHAPE.rows();
    let (mut all, mut taken, mut unit) = (Vec::with_capacity(wanted), [0_u64; 2], 0);
    while all.len() < wanted {
        let behind = |n: usize| taken[n] as f64 / WEIGHTS[n];
        let source = usize::from(behind(1) < behind(0));
        let tokens = if random.random_range(0..LONG_EVERY) == 0 {
            LONG_TOKENS
        } else {
            random.random_range(SHORT_TOKENS)
        };
        taken[source] += tokens as u64;
        packer
            .push(document(source, unit, tokens))
            .map_err(bench_error)?;
        unit += 1;
        while let Some(batch) = packer.pop() {
            all.extend(rows_of(&batch));
        }
    }
    all.truncate(wanted);
    Ok(all)
}

fn document(source: usize, unit: u64, tokens: usize) -> Document {
    Document {
        pass: 0,
        place: Place {
            file: source as u32,
            unit,
            ..Place::default()
        },
        within: Within::default(),
        content: Content::Tokens(vec![0; tokens - 1]),
        columns: None,
        arrays: Vec::new(),
    }
}

fn rows_of(batch: &PackedBatch) -> Vec<Row> {
    let mut rows = vec![Row::default(); SHAPE.rows()];
    let placed = batch
        .sources
        .placed(SHAPE.seq_len.into(), SHAPE.rows() as u64);
    for (row, _, piece) in placed {
        if let Some(row) = rows.get_mut(row as usize) {
            row.documents.push(piece.unit);
            row.tokens[piece.file as usize % 2] += piece.items;
        }
    }
    rows
}

/// Returns the share of neighbouring rows of a batch that have a document in common.
fn neighbours(rows: &[Row]) -> f64 {
    let (mut same, mut all) = (0_u64, 0_u64);
    for batch in rows.chunks(SHAPE.rows()) {
        for pair in batch.windows(2) {
            all += 1;
            same += u64::from(
                pair[0]
                    .documents
                    .iter()
                    .any(|d| pair[1].documents.contains(d)),
            );
        }
    }
    same as f64 / all.max(1) as f64
}

/// Returns that share after perfect shuffles of windows.
fn ideal(rows: &[Row], window: usize, seed: u64) -> f64 {
    let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
    let mut sum = 0.0;
    for _ in 0..ORDERS {
        let mut own = rows.to_vec();
        for window in own.chunks_mut(window) {
            window.shuffle(&mut random);
        }
        sum += neighbours(&own);
    }
    sum / ORDERS as f64
}

/// Returns the largest error of a source's share in neighbouring batches.
fn share_error(rows: &[Row]) -> f64 {
    let mut window: VecDeque<[u64; 2]> = VecDeque::new();
    let mut sums = [0_u64; 2];
    let mut error = 0.0_f64;
    for batch in rows.chunks(SHAPE.rows()) {
        let mut own = [0; 2];
        for row in batch {
            own = [own[0] + row.tokens[0], own[1] + row.tokens[1]];
        }
        sums = [sums[0] + own[0], sums[1] + own[1]];
        window.push_back(own);
        if window.len() > BATCHES
            && let Some(first) = window.pop_front()
        {
            sums = [sums[0] - first[0], sums[1] - first[1]];
        }
        if window.len() == BATCHES {
            let share = sums[0] as f64 / (sums[0] + sums[1]).max(1) as f64;
            error = error.max((share - WEIGHTS[0]).abs());
        }
    }
    error
}

impl RowsReport {
    pub(super) fn text(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "rows       shuffled: same document {:.2} over ideal, shares {:.4} off at most in {BATCHES} batches; \
             as packed: {:.1}, {:.4}",
            self.neighbours_same_document_ratio,
            self.given_share_error_max,
            self.packed_neighbours_same_document_ratio,
            self.packed_given_share_error_max
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: OrderArgs,
    }

    /// The goals of the page, and that rows as they are packed miss them.
    #[test]
    fn shuffled_rows_keep_shares_and_part_the_rows_of_a_document() {
        let command = Command::parse_from(["order", "--rows-batches", "64"]);
        let report = measure(&command.args).unwrap();
        assert!(report.neighbours_same_document_ratio <= 1.3, "{report:?}");
        assert!(report.given_share_error_max <= 0.02, "{report:?}");
        assert!(
            report.packed_neighbours_same_document_ratio > 2.0,
            "{report:?}"
        );
    }
}
