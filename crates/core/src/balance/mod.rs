//! Global batches of equal cost: documents, their costs and the settings decide in which batch, slice and bin each
//! document is. A bin is a micro-batch of one slice; the bins of one micro-batch over all slices are a row.
//!
//! - `cost` is what a rank spends on a document, `settings` the shape of a window and when it is full;
//! - `place` puts the documents of a window into bins (`bin`), by `ranked` bins; `dearest` and `dense` are its exceptions;
//! - `rows` makes rows of bins, batches of rows, and gives bins to slices; `even` levels the slices;
//! - `arrange` is the whole, and `arrangement` its result.
//!
//! Invariants:
//! - each document of a window is in one bin, or carried to the next window; no bin exceeds its capacity;
//! - the arrangement is a function of its arguments, computed with whole numbers;
//! - a document that a window carries is in a bin of the next one. For a window has at most the tokens of its bins.
//!   If one of length *l*, up to half a bin *T*, fits nowhere, each bin holds more than *T* - *l*, so all carried ones
//!   together have fewer than *l* tokens per bin, and the next window, which places them first and the longest first,
//!   finds one with *l* of room. Of longer ones a window carries at most one per bin, and they are placed before the
//!   shorter ones, into bins of their own.

mod arrange;
mod arrangement;
mod bin;
mod cost;
mod dearest;
mod dense;
mod even;
mod place;
mod ranked;
mod rows;
mod settings;

pub use arrange::{ArrangeError, arrange};
pub use arrangement::{Arrangement, BalancedBatch};
pub use cost::{COST_OF_TOKEN, CostError, CostModel, CostSpec};
pub use settings::{BalanceSettings, SettingsError, WindowFill};

/// The most documents that a window carries to the next one.
pub const CARRIED_MAX: usize = 1024;

/// The size of a document, or of a group of documents that must share a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Document {
    pub tokens: u32,
    /// Its cost in parts of a token ([`CostModel::cost`]); that of a group is the sum.
    pub cost: u64,
    /// The window before had no room for it.
    pub carried: bool,
}

impl Document {
    /// Returns the tokens that count for the room of a bin. An empty document counts as one, so that a bin has a bounded
    /// number of documents.
    fn room(&self) -> u64 {
        u64::from(self.tokens.max(1))
    }
}

#[cfg(test)]
mod tests;
