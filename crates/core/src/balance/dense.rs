//! Bins that long documents nearly fill, where the cost of arrays counts: the little room that is left takes the
//! documents that are dearest for their length, or such a bin would be the cheapest of all.

use std::cmp::Reverse;

use super::bin::{Bin, Placement};
use super::{BalanceSettings, Document};

/// A bin is filled up when it lacks this many times the mean cost per token, for each token of its room.
const SCARCE_TIMES: u128 = 2;
/// The documents that wait for a bin with enough room.
const WAITING_MAX: usize = 64;
/// Parts in which the costs of a token are compared.
const PARTS: u128 = 1 << 16;

/// Fills up the bins with little room, the scarcest first, to the mean cost of a bin. `order` has the documents that are
/// left; those that are not placed stay.
pub(super) fn fill_up(
    settings: &BalanceSettings,
    documents: &[Document],
    order: &[u32],
    placement: &mut Placement,
) {
    let cost: u64 = documents.iter().map(|d| d.cost).sum();
    let mean = cost / placement.bins.len().max(1) as u64;
    let mut dense = dearest_for_length(documents, order).into_iter();
    let mut waiting: Vec<u32> = Vec::new();
    for bin in scarce(settings, documents, &placement.bins, cost) {
        let mut fits = |index: &u32| {
            let document = &documents[*index as usize];
            let now = placement.bins[bin as usize];
            let fits = now.has_room(settings, document) && now.cost + document.cost <= mean;
            if fits {
                placement.put(documents, *index, bin);
            }
            fits
        };
        waiting.retain(|index| !fits(index));
        while waiting.len() < WAITING_MAX
            && let Some(index) = dense.next()
        {
            if !fits(&index) {
                waiting.push(index);
            }
        }
    }
}

/// Returns the documents by the cost of a token, the dearest first.
fn dearest_for_length(documents: &[Document], order: &[u32]) -> Vec<u32> {
    let density = |index: &u32| {
        let document = &documents[*index as usize];
        u128::from(document.cost) * PARTS / u128::from(document.room())
    };
    let mut dense: Vec<(Reverse<u128>, u32)> = order
        .iter()
        .map(|index| (Reverse(density(index)), *index))
        .collect();
    dense.sort_unstable();
    dense.into_iter().map(|(_, index)| index).collect()
}

/// Returns the bins that would stay cheap, by what each token of their room must cost, the most first. `cost` is that of
/// all documents.
fn scarce(settings: &BalanceSettings, documents: &[Document], bins: &[Bin], cost: u64) -> Vec<u32> {
    let mean = cost / bins.len().max(1) as u64;
    let tokens: u64 = documents.iter().map(Document::room).sum();
    let usual = u128::from(cost) * PARTS / u128::from(tokens.max(1));
    let needed = |bin: &Bin| {
        let room = bin.room(settings);
        let lacks = mean.saturating_sub(bin.cost);
        (room > 0).then(|| u128::from(lacks) * PARTS / u128::from(room))
    };
    let mut scarce: Vec<(Reverse<u128>, u32)> = bins
        .iter()
        .zip(0..)
        .filter_map(|(bin, number)| Some((Reverse(needed(bin)?), number)))
        .filter(|(needed, _)| needed.0 > usual * SCARCE_TIMES)
        .collect();
    scarce.sort_unstable();
    scarce.into_iter().map(|(_, number)| number).collect()
}
