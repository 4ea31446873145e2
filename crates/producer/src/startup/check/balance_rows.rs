//! The cost of the same documents in rows, by `best_fit` and by `concat`.

use batchweave_core::balance::{BalanceSettings, CostModel};
use batchweave_core::provenance::Piece;

use super::drawn::Drawn;
use crate::packing::{
    AddedTokens, BestFit, Concat, Content, Document, PackedBatch, Packer, Restart, Shape, Within,
};
use crate::sources::Place;

/// Pieces among which `best_fit` selects, its default.
const LOOK_AHEAD: usize = 512;

/// The dearest slices and the means of some steps.
#[derive(Debug, Default)]
pub(super) struct Costs {
    dearest: f64,
    mean: f64,
}

impl Costs {
    /// Adds a step with these costs.
    pub(super) fn add(&mut self, dearest: f64, mean: f64) {
        self.dearest += dearest;
        self.mean += mean;
    }

    /// Returns the time of all steps over that of perfect balance: a step takes as long as its dearest slice.
    pub(super) fn time(&self) -> f64 {
        if self.mean > 0.0 {
            self.dearest / self.mean
        } else {
            1.0
        }
    }
}

/// Returns the time of steps with rows of `best_fit` over the ideal; `None` where a cost overflows.
pub(super) fn best_fit(
    settings: &BalanceSettings,
    cost: &CostModel,
    documents: &[Drawn],
) -> Option<f64> {
    let packer = BestFit::new(shape(settings), ADDED, LOOK_AHEAD, Restart::default());
    time(Box::new(packer), settings, cost, documents)
}

/// Returns the time of steps with rows of `concat` over the ideal, whose attention ends at documents; `None` where a cost
/// overflows.
pub(super) fn concat(
    settings: &BalanceSettings,
    cost: &CostModel,
    documents: &[Drawn],
) -> Option<f64> {
    let at = Restart::default().at;
    let packer = Concat::new(shape(settings), ADDED, at, false);
    time(Box::new(packer), settings, cost, documents)
}

const ADDED: AddedTokens = AddedTokens { end: 0, pad: 0 };

fn shape(settings: &BalanceSettings) -> Shape {
    Shape {
        slices: settings.slices,
        rows_per_slice: settings.micro_batches,
        seq_len: settings.tokens - 1,
    }
}

fn time(
    mut packer: Box<dyn Packer>,
    settings: &BalanceSettings,
    cost: &CostModel,
    documents: &[Drawn],
) -> Option<f64> {
    let mut costs = Costs::default();
    for (unit, document) in (0..).zip(documents) {
        packer.push(blank(unit, document.tokens)).ok()?;
        while let Some(batch) = packer.pop() {
            let (dearest, mean) = slices(&batch, settings, cost, documents)?;
            costs.add(dearest, mean);
        }
    }
    Some(costs.time())
}

/// Returns a document of this number of tokens, its end token included.
fn blank(unit: u64, tokens: u32) -> Document {
    Document {
        pass: 0,
        place: Place {
            unit,
            ..Place::default()
        },
        within: Within::default(),
        content: Content::Tokens(vec![0; (tokens as usize).saturating_sub(1)]),
        columns: None,
        arrays: Vec::new(),
    }
}

/// Returns the cost of the dearest slice of a batch, and the mean.
fn slices(
    batch: &PackedBatch,
    settings: &BalanceSettings,
    cost: &CostModel,
    documents: &[Drawn],
) -> Option<(f64, f64)> {
    let per_slice = u64::from(settings.micro_batches);
    let rows = u64::from(settings.slices) * per_slice;
    let stride = u64::from(settings.tokens) - 1;
    let mut slices = vec![0.0; settings.slices as usize];
    for (row, _, piece) in batch.sources.placed(stride, rows) {
        let slice = usize::try_from(row / per_slice).ok()?;
        *slices.get_mut(slice)? += of_piece(&piece, cost, documents)? as f64;
    }
    let sum: f64 = slices.iter().sum();
    let dearest = slices.iter().copied().fold(0.0, f64::max);
    Some((dearest, sum / slices.len() as f64))
}

/// Returns the cost of a piece; a whole document also has that of its arrays.
fn of_piece(piece: &Piece, cost: &CostModel, documents: &[Drawn]) -> Option<u64> {
    let document = documents.get(usize::try_from(piece.unit).ok()?)?;
    if piece.items == u64::from(document.tokens) {
        return Some(document.cost);
    }
    cost.cost(u32::try_from(piece.items).ok()?, &[]).ok()
}
