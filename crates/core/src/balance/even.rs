//! The short documents of a batch once more: within each micro-batch row they move to the bins whose slices cost least.
//!
//! Bins are filled by tokens, so those of a row differ by their long documents. The short ones level that as far as
//! the room of the bins allows, and where an indivisible document makes a slice dear, later rows make up for it.

use std::cmp::Reverse;

use super::bin::{Bin, NOWHERE, Placement};
use super::ranked::Ranked;
use super::rows::{self, BatchRows};
use super::{BalanceSettings, Document};

/// A document is short up to this part of a bin.
const SHORT_PART: u32 = 8;
/// The cheapest bins that are tried for a document. If none of them has room, the row stays as it is.
const TRIES: usize = 64;

/// Rows while their short documents move.
pub(super) struct Evening<'a> {
    settings: &'a BalanceSettings,
    documents: &'a [Document],
    placement: &'a mut Placement,
    /// The short documents of each bin.
    short: Vec<Vec<u32>>,
}

impl<'a> Evening<'a> {
    pub(super) fn new(
        settings: &'a BalanceSettings,
        documents: &'a [Document],
        placement: &'a mut Placement,
    ) -> Self {
        let most = u64::from((settings.tokens / SHORT_PART).max(1));
        let mut short = vec![Vec::new(); placement.bins.len()];
        for ((index, document), bin) in (0..).zip(documents).zip(&placement.bin_of) {
            // Where a document without a cost is makes no difference.
            if *bin != NOWHERE && document.cost > 0 && document.room() <= most {
                short[*bin as usize].push(index);
            }
        }
        Self {
            settings,
            documents,
            placement,
            short,
        }
    }

    /// Gives the bins of each row to slices and moves the short documents among them, the dearest row first. Returns the
    /// costs of the slices.
    pub(super) fn batch(&mut self, batch: &mut BatchRows) -> Vec<u64> {
        let mut slices = vec![0_u64; self.settings.slices as usize];
        for row in batch {
            rows::deal(row, &self.placement.bins, &slices);
            let mean = slices.iter().sum::<u64>() / u64::from(self.settings.slices);
            // Slices below the mean count as even: filling them up would make their bins the dearest of this row.
            let ahead: Vec<u64> = slices
                .iter()
                .map(|cost| cost.saturating_sub(mean))
                .collect();
            self.row(row, &ahead);
            for (slice, bin) in slices.iter_mut().zip(row) {
                *slice += self.placement.bins[*bin as usize].cost;
            }
        }
        slices
    }

    /// Moves the short documents of a row, unless that would make its dearest slice dearer. `ahead` has what counts in
    /// addition to the cost of each bin.
    fn row(&mut self, row: &[u32], ahead: &[u64]) {
        let before: Vec<Bin> = row
            .iter()
            .map(|bin| self.placement.bins[*bin as usize])
            .collect();
        let mut bins = before.clone();
        let short = self.take_out(row, &mut bins);
        let Some(places) = self.place(&mut bins, &short, ahead) else {
            return;
        };
        if dearest(&bins, ahead) > dearest(&before, ahead) {
            return;
        }
        for (index, at) in short.into_iter().zip(places) {
            self.placement.bin_of[index as usize] = row[at as usize];
        }
        for (bin, now) in row.iter().zip(bins) {
            self.placement.bins[*bin as usize] = now;
        }
    }

    /// Removes the short documents of a row from its bins. Returns them, the dearest first.
    fn take_out(&self, row: &[u32], bins: &mut [Bin]) -> Vec<u32> {
        let mut short: Vec<(Reverse<u64>, u32)> = Vec::new();
        for (bin, number) in bins.iter_mut().zip(row) {
            for &index in &self.short[*number as usize] {
                let document = &self.documents[index as usize];
                bin.remove(document);
                short.push((Reverse(document.cost), index));
            }
        }
        short.sort_unstable();
        short.into_iter().map(|(_, index)| index).collect()
    }

    /// Places documents into bins. Returns the bin of each; `None` when one fits nowhere.
    fn place(&self, bins: &mut [Bin], short: &[u32], ahead: &[u64]) -> Option<Vec<u32>> {
        let mut cheapest = Ranked::new(bins.iter().zip(ahead).map(|(bin, ahead)| bin.cost + ahead));
        let mut places = Vec::with_capacity(short.len());
        for index in short {
            let document = &self.documents[*index as usize];
            let key = |bin: u32| bins[bin as usize].cost + ahead[bin as usize];
            let fits = |bin: u32| bins[bin as usize].has_room(self.settings, document);
            let to = cheapest.take(TRIES, key, fits)?;
            bins[to as usize].put(document);
            cheapest.insert(bins[to as usize].cost + ahead[to as usize], to);
            places.push(to);
        }
        Some(places)
    }
}

fn dearest(bins: &[Bin], ahead: &[u64]) -> u64 {
    let costs = bins.iter().zip(ahead).map(|(bin, ahead)| bin.cost + ahead);
    costs.max().unwrap_or(0)
}
