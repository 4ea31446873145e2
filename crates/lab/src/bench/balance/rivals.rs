//! The same documents by other means: rows of the producer's `best_fit`, and a greedy balancer that sees one step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use batchweave_console::CliError;
use batchweave_core::balance::{BalanceSettings, Document};
use batchweave_producer::packing::{
    self, AddedTokens, BatchContent, BestFit, Content, Packer, Restart, Within,
};
use batchweave_producer::sources::Place;

use super::lengths::Documents;
use super::measures::StepCosts;
use crate::error::bench_error;

/// Pieces among which `best_fit` selects, its default.
const LOOK_AHEAD: usize = 512;
/// The greedy balancer's batch is full at this share of its capacity.
const FULL: f64 = 0.98;

/// Packs rows by the producer's `best_fit`: a row is a bin, and the rows of a slice follow one another.
pub(super) fn best_fit(
    settings: &BalanceSettings,
    documents: &mut Documents,
    steps: usize,
) -> Result<Vec<StepCosts>, CliError> {
    let shape = packing::Shape {
        slices: settings.slices,
        rows_per_slice: settings.micro_batches,
        seq_len: settings.tokens - 1,
    };
    let added = AddedTokens { end: 0, pad: 0 };
    let mut packer = BestFit::new(shape, added, LOOK_AHEAD, Restart::default());
    let (mut images, mut made) = (Vec::new(), Vec::new());
    while made.len() < steps {
        let raw = documents.draw();
        let unit = images.len() as u64;
        images.push(raw.images);
        packer
            .push(document(unit, raw.tokens))
            .map_err(bench_error)?;
        while made.len() < steps
            && let Some(batch) = packer.pop()
        {
            let cost = |unit: u64, tokens: usize| {
                let images = images.get(unit as usize).copied().unwrap_or(0);
                documents
                    .model()
                    .cost(tokens as u32, &[images])
                    .map_err(bench_error)
            };
            made.push(costs(settings, &batch.content, cost)?);
        }
    }
    Ok(made)
}

/// Returns a document of this number of tokens; the packer adds one.
fn document(unit: u64, tokens: u32) -> packing::Document {
    let place = Place {
        unit,
        ..Place::default()
    };
    packing::Document {
        pass: 0,
        place,
        within: Within::default(),
        content: Content::Tokens(vec![0; tokens as usize - 1]),
        columns: None,
        arrays: Vec::new(),
    }
}

fn costs(
    settings: &BalanceSettings,
    content: &BatchContent,
    cost: impl Fn(u64, usize) -> Result<u64, CliError>,
) -> Result<StepCosts, CliError> {
    let BatchContent::Rows(rows) = content else {
        return Err(bench_error("best_fit made no rows"));
    };
    let micro_batches = settings.micro_batches as usize;
    let mut bins = vec![vec![0.0; micro_batches]; settings.slices as usize];
    let mut tokens = 0;
    for segment in &rows.segments {
        let (slice, micro) = (segment.row / micro_batches, segment.row % micro_batches);
        bins[slice][micro] += cost(segment.document.1, segment.tokens)? as f64;
        tokens += segment.tokens;
    }
    let capacity = settings.bins() as f64 * f64::from(settings.tokens);
    Ok(StepCosts {
        bins,
        fill: tokens as f64 / capacity,
    })
}

/// Balances each step alone, as trainers do: the longest document first, to the cheapest slice that has room in all of its
/// bins together. Documents that fit nowhere wait for the next step.
pub(super) fn greedy(
    settings: &BalanceSettings,
    documents: &mut Documents,
    steps: usize,
) -> Result<Vec<StepCosts>, CliError> {
    let slice_tokens = u64::from(settings.micro_batches) * u64::from(settings.tokens);
    let capacity = slice_tokens * u64::from(settings.slices);
    let mut waiting: Vec<Document> = Vec::new();
    let mut made = Vec::new();
    while made.len() < steps {
        let mut tokens: u64 = waiting.iter().map(|d| u64::from(d.tokens)).sum();
        while (tokens as f64) < FULL * capacity as f64 {
            let raw = documents.draw();
            let pieces = documents.pieces(raw)?;
            tokens += pieces.iter().map(|d| u64::from(d.tokens)).sum::<u64>();
            waiting.extend(pieces);
        }
        waiting.sort_by_key(|d| Reverse(d.cost));
        let slices = vec![(0, 0); settings.slices as usize];
        let (slices, left) = assign(slices, slice_tokens, &waiting);
        let placed: u64 = slices.iter().map(|(_, tokens)| tokens).sum();
        made.push(StepCosts {
            bins: slices.iter().map(|(cost, _)| vec![*cost as f64]).collect(),
            fill: placed as f64 / capacity as f64,
        });
        waiting = left;
    }
    Ok(made)
}

/// Gives documents to slices, which have a cost and tokens. Returns the slices, and the documents that are left.
fn assign(
    mut slices: Vec<(u64, u64)>,
    capacity: u64,
    documents: &[Document],
) -> (Vec<(u64, u64)>, Vec<Document>) {
    let mut cheapest: BinaryHeap<Reverse<(u64, usize)>> =
        (0..slices.len()).map(|slice| Reverse((0, slice))).collect();
    let mut left = Vec::new();
    for document in documents {
        let tokens = u64::from(document.tokens);
        let mut full = Vec::new();
        let mut found = None;
        while let Some(Reverse((_, slice))) = cheapest.pop() {
            if slices[slice].1 + tokens <= capacity {
                found = Some(slice);
                break;
            }
            full.push(Reverse((slices[slice].0, slice)));
        }
        cheapest.extend(full);
        let Some(slice) = found else {
            left.push(*document);
            continue;
        };
        slices[slice].0 += document.cost;
        slices[slice].1 += tokens;
        cheapest.push(Reverse((slices[slice].0, slice)));
    }
    (slices, left)
}
