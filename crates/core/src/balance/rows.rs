//! Bins into micro-batch rows of equal cost, rows into batches, and the bins of a batch into slices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::BalanceSettings;
use super::bin::{Bin, dearest_first};

/// The bins of a batch: by micro-batch, the bin of each slice.
pub(super) type BatchRows = Vec<Vec<u32>>;

/// Returns the rows of each batch, the dearest row of a batch first. The bins of a row are not yet in the order of
/// slices.
pub(super) fn batches(settings: &BalanceSettings, bins: &[Bin]) -> Vec<BatchRows> {
    let by_cost = dearest_first(bins);
    let rows = by_cost.chunks(settings.slices as usize);
    let count = bins.len() / settings.bins();
    let mut batches: Vec<BatchRows> = vec![Vec::new(); count];
    let mut cheapest: BinaryHeap<Reverse<(u64, usize)>> =
        (0..count).map(|batch| Reverse((0, batch))).collect();
    for row in rows {
        let Some(Reverse((cost, batch))) = cheapest.pop() else {
            break;
        };
        let own: u64 = row.iter().map(|bin| bins[*bin as usize].cost).sum();
        batches[batch].push(row.to_vec());
        if batches[batch].len() < settings.micro_batches as usize {
            cheapest.push(Reverse((cost + own, batch)));
        }
    }
    batches
}

/// Orders the bins of a row by slice: the dearest bin to the slice with the least cost so far, ties in the order of
/// reversed bits, so that neighbouring slices, which one rank may get, differ.
pub(super) fn deal(row: &mut [u32], bins: &[Bin], slices: &[u64]) {
    let mut order: Vec<usize> = (0..slices.len()).collect();
    order.sort_unstable_by_key(|slice| (slices[*slice], slice.reverse_bits()));
    row.sort_unstable_by_key(|bin| (Reverse(bins[*bin as usize].cost), *bin));
    let dealt = row.to_vec();
    for (slice, bin) in order.into_iter().zip(dealt) {
        row[slice] = bin;
    }
}
