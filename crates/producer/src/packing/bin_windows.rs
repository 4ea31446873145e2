//! Arranged windows of bins. Their batches are made one after another, so that those that are not given can be unmade.

use std::collections::VecDeque;

use batchweave_core::balance::BalancedBatch;

use super::bin_piece::BinPiece;
use super::bin_units::unit;
use super::{BatchContent, PackedBatch, Restart};

/// The windows whose batches are given next.
#[derive(Debug, Default)]
pub(super) struct BinWindows {
    windows: VecDeque<BinWindow>,
    /// The units of the batch that is given now.
    units: VecDeque<PackedBatch>,
}

/// A window whose pieces have their bins.
#[derive(Debug)]
pub(super) struct BinWindow {
    /// The batches that are left, each with the state behind it.
    pub(super) batches: VecDeque<(BalancedBatch, Restart)>,
    /// The pieces by their index in the arrangement, until a batch takes them.
    pub(super) pieces: Vec<Option<BinPiece>>,
}

impl BinWindow {
    /// Makes the next batch, in `units` units.
    pub(super) fn pop(&mut self, units: usize) -> Option<VecDeque<PackedBatch>> {
        let (batch, next) = self.batches.pop_front()?;
        let of_unit = batch.slices() / units.max(1);
        let slices = (0..batch.slices()).step_by(of_unit.max(1));
        let mut made: VecDeque<PackedBatch> = slices
            .map(|first| unit(&batch, first..first + of_unit, &mut self.pieces, &next))
            .collect();
        let learned = |unit: &PackedBatch| match &unit.content {
            BatchContent::Bins(bins) => bins.loss_tokens,
            _ => 0,
        };
        let all: u64 = made.iter().map(learned).sum();
        for unit in &mut made {
            if let BatchContent::Bins(bins) = &mut unit.content {
                bins.loss_tokens = all;
            }
        }
        Some(made)
    }
}

impl BinWindows {
    pub(super) fn push(&mut self, window: BinWindow) {
        self.windows.push_back(window);
    }

    /// Takes out the last window, behind whose batches packing continues at `next`.
    pub(super) fn split_last(&mut self, next: &Restart) -> Self {
        let mut last = self.windows.pop_back();
        let batches = last.iter_mut().flat_map(|window| &mut window.batches);
        batches.for_each(|(_, behind)| behind.clone_from(next));
        Self {
            windows: last.into_iter().collect(),
            units: VecDeque::new(),
        }
    }

    /// Returns the next unit of a batch, of which each has `units`.
    pub(super) fn pop(&mut self, units: usize) -> Option<PackedBatch> {
        while self.units.is_empty() {
            match self.windows.front_mut()?.pop(units) {
                Some(made) => self.units = made,
                None => {
                    self.windows.pop_front();
                }
            }
        }
        self.units.pop_front()
    }

    /// Takes out the pieces of the batches that were not made.
    pub(super) fn unmake(&mut self) -> impl Iterator<Item = BinPiece> {
        let windows = std::mem::take(&mut self.windows).into_iter();
        windows.flat_map(|window| window.pieces).flatten()
    }

    /// Returns the number of tokens that are in no unit before.
    pub(super) fn own(&self) -> u64 {
        let pieces = self.windows.iter().flat_map(|window| &window.pieces);
        let unmade = pieces.flatten().map(BinPiece::own);
        self.units.iter().map(|unit| unit.own).chain(unmade).sum()
    }
}
