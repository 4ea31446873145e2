//! Bins, and which document is in which.

use std::cmp::Reverse;

use super::{BalanceSettings, Document};

/// The bin of a document that fits nowhere.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The content of a bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bin {
    /// Tokens, where an empty document counts as one.
    pub(super) filled: u64,
    pub(super) cost: u64,
}

impl Bin {
    pub(super) fn room(self, settings: &BalanceSettings) -> u64 {
        u64::from(settings.tokens) - self.filled
    }

    pub(super) fn has_room(self, settings: &BalanceSettings, document: &Document) -> bool {
        document.room() <= self.room(settings)
    }

    pub(super) fn put(&mut self, document: &Document) {
        self.filled += document.room();
        self.cost += document.cost;
    }

    pub(super) fn remove(&mut self, document: &Document) {
        self.filled -= document.room();
        self.cost -= document.cost;
    }
}

/// Returns the bins in the order of their cost, the dearest first.
pub(super) fn dearest_first(bins: &[Bin]) -> Vec<u32> {
    let mut order: Vec<(Reverse<u64>, u32)> = bins
        .iter()
        .zip(0..)
        .map(|(bin, number)| (Reverse(bin.cost), number))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, number)| number).collect()
}

/// The bin of each document, and what the bins hold.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) bins: Vec<Bin>,
    /// The bin of each document, or [`NOWHERE`].
    pub(super) bin_of: Vec<u32>,
}

impl Placement {
    /// Puts a document into a bin with room.
    pub(super) fn put(&mut self, documents: &[Document], index: u32, bin: u32) {
        self.bins[bin as usize].put(&documents[index as usize]);
        self.bin_of[index as usize] = bin;
    }
}
