//! The bins of the dearest row, filled up with long documents. The longest documents of a window differ most, and a bin
//! that has one of them can't become cheaper; so the others of its row become dearer.

use std::collections::BTreeSet;

use super::bin::{Bin, dearest_first};
use super::{BalanceSettings, Document};

/// A document is filled in from this part of a bin on.
const LEAST_PART: u64 = 32;
/// A bin is dear enough at this share of the dearest, in eighths.
const ENOUGH_EIGHTHS: u128 = 7;

/// The bins of the dearest row that are not dear enough yet.
#[derive(Debug)]
pub(super) struct Dearest {
    /// The room of each, and the bin.
    open: BTreeSet<(u64, u32)>,
    /// The cost and the tokens of a short document, by which the rest of a bin is filled.
    short: (u128, u128),
    /// Cost of a full bin from which on it is dear enough.
    enough: u128,
}

impl Dearest {
    /// Selects the dearest bins. `order` has the documents that are left, the longest first.
    pub(super) fn new(
        settings: &BalanceSettings,
        documents: &[Document],
        order: &[u32],
        bins: &[Bin],
    ) -> Self {
        let middle = order
            .get(order.len() / 2)
            .map(|at| &documents[*at as usize]);
        let mut dearest = Self {
            open: BTreeSet::new(),
            short: middle.map_or((0, 1), |d| (u128::from(d.cost), u128::from(d.room()))),
            enough: 0,
        };
        let mut row = dearest_first(bins);
        row.truncate(settings.slices as usize);
        let full = row
            .iter()
            .map(|bin| dearest.full(settings, bins[*bin as usize]));
        dearest.enough = full.max().unwrap_or(0) * ENOUGH_EIGHTHS / 8;
        for bin in row {
            dearest.keep(settings, bin, bins[bin as usize]);
        }
        dearest
    }

    /// Removes and returns the bin with the least room for a document, if it is long.
    pub(super) fn bin_for(
        &mut self,
        settings: &BalanceSettings,
        document: &Document,
    ) -> Option<u32> {
        if document.room() * LEAST_PART < u64::from(settings.tokens) {
            return None;
        }
        let found = self.open.range((document.room(), 0)..).next().copied()?;
        self.open.remove(&found);
        Some(found.1)
    }

    /// Keeps a bin among those that are filled up, unless it is dear enough.
    pub(super) fn keep(&mut self, settings: &BalanceSettings, number: u32, bin: Bin) {
        if self.full(settings, bin) < self.enough {
            self.open.insert((bin.room(settings), number));
        }
    }

    /// Returns what a bin costs when short documents fill it.
    fn full(&self, settings: &BalanceSettings, bin: Bin) -> u128 {
        let (cost, tokens) = self.short;
        u128::from(bin.cost) + u128::from(bin.room(settings)) * cost / tokens
    }
}
