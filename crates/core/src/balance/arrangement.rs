//! An arranged window: its batches, and the documents that wait.

use super::bin::NOWHERE;
use super::rows::BatchRows;
use crate::tgb::SliceCost;

/// Documents in the bins of a batch. A document is named by its index among those that were arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancedBatch {
    /// The documents of each bin, in stream order; bin by bin, and slice by slice.
    documents: Vec<u32>,
    /// The end of each bin in `documents`.
    ends: Vec<usize>,
    micro_batches: usize,
    pub cost: SliceCost,
}

impl BalancedBatch {
    /// Returns the documents of a bin. Both numbers must be below those of the settings.
    pub fn bin(&self, slice: usize, micro_batch: usize) -> &[u32] {
        let at = slice * self.micro_batches + micro_batch;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.documents[start..self.ends[at]]
    }

    /// Returns the number of slices, which empty bins count for.
    pub fn slices(&self) -> usize {
        self.ends.len() / self.micro_batches
    }

    /// Returns the number of bins of each slice.
    pub fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    /// Collects a batch from its rows, and the costs of its slices.
    pub(super) fn new(rows: &BatchRows, contents: &BinContents, costs: &[u64]) -> Self {
        let mut batch = Self {
            documents: Vec::new(),
            ends: Vec::with_capacity(rows.len() * costs.len()),
            micro_batches: rows.len(),
            cost: SliceCost {
                max: costs.iter().copied().max().unwrap_or(0),
                mean: costs.iter().sum::<u64>() / costs.len().max(1) as u64,
            },
        };
        for slice in 0..costs.len() {
            for row in rows {
                batch.documents.extend(contents.of_bin(row[slice]));
                batch.ends.push(batch.documents.len());
            }
        }
        batch
    }
}

/// The batches of a window, in the order in which they are emitted, and what is left of its documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrangement {
    pub batches: Vec<BalancedBatch>,
    /// The documents that fit nowhere: the next window places them first.
    pub carried: Vec<u32>,
    /// The number of documents of the window. Those from here on go back to the stream, untouched.
    pub taken: usize,
}

/// The documents of each bin, in stream order.
#[derive(Debug)]
pub(super) struct BinContents {
    documents: Vec<u32>,
    /// The start of each bin, and the end of the last one.
    starts: Vec<usize>,
}

impl BinContents {
    pub(super) fn new(bins: usize, bin_of: &[u32]) -> Self {
        let placed = || (0..).zip(bin_of).filter(|(_, bin)| **bin != NOWHERE);
        let mut starts = vec![0; bins + 1];
        for (_, bin) in placed() {
            starts[*bin as usize + 1] += 1;
        }
        for bin in 0..bins {
            starts[bin + 1] += starts[bin];
        }
        let mut next = starts.clone();
        let mut documents = vec![0; starts[bins]];
        for (index, bin) in placed() {
            let at = &mut next[*bin as usize];
            documents[*at] = index;
            *at += 1;
        }
        Self { documents, starts }
    }

    fn of_bin(&self, bin: u32) -> &[u32] {
        let bin = bin as usize;
        &self.documents[self.starts[bin]..self.starts[bin + 1]]
    }
}
