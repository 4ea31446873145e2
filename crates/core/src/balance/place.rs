//! Documents into bins: the largest first, each into the bin with the fewest tokens that has room, with two exceptions.
//! The bins of the dearest row take long documents ([`dearest`](super::dearest)). Where documents may be dear without
//! being long, those that are go into the cheapest bin, so that long documents and dear ones meet in a bin, and bins that
//! long documents nearly fill take the dearest for their length ([`dense`](super::dense)).

use std::cmp::Reverse;

use super::bin::{Bin, NOWHERE, Placement};
use super::dearest::Dearest;
use super::ranked::Ranked;
use super::{BalanceSettings, Document, dense};

/// The cheapest bins that are tried for a dear document, before the one with the fewest tokens.
const TRIES: usize = 16;
/// A document is long from this part of a bin on.
const LONG_PART: u64 = 4;

impl Placement {
    /// Places documents into this number of bins: first those that an earlier window carried, then the others.
    pub(super) fn new(settings: &BalanceSettings, documents: &[Document], bins: usize) -> Self {
        let mut placement = Self {
            bins: vec![Bin::default(); bins],
            bin_of: vec![NOWHERE; documents.len()],
        };
        // By their tokens alone: in this order they fit (header of the folder).
        let carried = order(documents, |d| d.carried.then_some(d.tokens));
        placement.by_tokens(settings, documents, &carried);
        if settings.by_cost {
            placement.by_cost(settings, documents);
        } else {
            let new = order(documents, |d| (!d.carried).then_some(d.tokens));
            let (first, others) = new.split_at(new.len().min(settings.slices as usize));
            placement.by_tokens(settings, documents, first);
            let others = placement.dearest_row(settings, documents, others);
            placement.by_tokens(settings, documents, &others);
        }
        placement
    }

    /// Places documents in this order, each into the bin with the fewest tokens. If that has no room, none has.
    fn by_tokens(&mut self, settings: &BalanceSettings, documents: &[Document], order: &[u32]) {
        let mut ranked = Ranked::new(self.bins.iter().map(|bin| bin.filled));
        for &index in order {
            let document = &documents[index as usize];
            let bins = &self.bins;
            let has_room = |bin: u32| bins[bin as usize].has_room(settings, document);
            if let Some(to) = ranked.take(1, |bin| bins[bin as usize].filled, has_room) {
                self.put(documents, index, to);
                ranked.insert(self.bins[to as usize].filled, to);
            }
        }
    }

    /// Fills up the dearest bins, as many as there are slices, with the first of these documents, the longest first.
    /// Returns the others.
    fn dearest_row(
        &mut self,
        settings: &BalanceSettings,
        documents: &[Document],
        order: &[u32],
    ) -> Vec<u32> {
        let mut dearest = Dearest::new(settings, documents, order, &self.bins);
        let mut others = Vec::with_capacity(order.len());
        for &index in order {
            let document = &documents[index as usize];
            match dearest.bin_for(settings, document) {
                Some(bin) => {
                    self.put(documents, index, bin);
                    dearest.keep(settings, bin, self.bins[bin as usize]);
                }
                None => others.push(index),
            }
        }
        others
    }

    /// Places documents that may be dear without being long.
    fn by_cost(&mut self, settings: &BalanceSettings, documents: &[Document]) {
        let measure = Measure::new(settings, documents, self.bins.len());
        let new = order(documents, |d| (!d.carried).then(|| measure.size(d)));
        let long = |index: &u32| {
            documents[*index as usize].room() * LONG_PART >= u64::from(settings.tokens)
        };
        let (long, others): (Vec<u32>, Vec<u32>) = new.into_iter().partition(long);
        self.by_size(settings, documents, &long, measure);
        dense::fill_up(settings, documents, &others, self);
        let left = |index: &u32| self.bin_of[*index as usize] == NOWHERE;
        let others: Vec<u32> = others.into_iter().filter(left).collect();
        self.by_size(settings, documents, &others, measure);
    }

    /// Places documents in this order: dear ones into the cheapest bin, others into the one with the fewest tokens.
    fn by_size(
        &mut self,
        settings: &BalanceSettings,
        documents: &[Document],
        order: &[u32],
        measure: Measure,
    ) {
        let mut by_tokens = Ranked::new(self.bins.iter().map(|bin| bin.filled));
        let mut by_cost = Ranked::new(self.bins.iter().map(|bin| bin.cost));
        for &index in order {
            let document = &documents[index as usize];
            let bins = &self.bins;
            let has_room = |bin: u32| bins[bin as usize].has_room(settings, document);
            let cheapest = measure
                .is_dear(document)
                .then(|| by_cost.take(TRIES, |bin| bins[bin as usize].cost, has_room))
                .flatten();
            let to =
                cheapest.or_else(|| by_tokens.take(1, |bin| bins[bin as usize].filled, has_room));
            let Some(to) = to else { continue };
            self.put(documents, index, to);
            let bin = self.bins[to as usize];
            if cheapest.is_some() {
                by_cost.insert(bin.cost, to);
            } else {
                by_tokens.insert(bin.filled, to);
            }
        }
    }
}

/// Compares shares of a bin's tokens with shares of the mean cost of a bin. Both are multiplied by both divisors, so
/// that they are whole numbers.
#[derive(Debug, Clone, Copy)]
struct Measure {
    per_token: u128,
    per_cost: u128,
}

impl Measure {
    fn new(settings: &BalanceSettings, documents: &[Document], bins: usize) -> Self {
        let cost: u128 = documents.iter().map(|d| u128::from(d.cost)).sum();
        Self {
            per_token: cost.max(1),
            per_cost: u128::from(settings.tokens) * bins as u128,
        }
    }

    fn shares(self, document: &Document) -> (u128, u128) {
        let tokens = u128::from(document.room()) * self.per_token;
        (tokens, u128::from(document.cost) * self.per_cost)
    }

    /// Returns the greater of both shares.
    fn size(self, document: &Document) -> u128 {
        let (tokens, cost) = self.shares(document);
        tokens.max(cost)
    }

    /// Returns whether a document takes more of a bin by its cost than by its tokens.
    fn is_dear(self, document: &Document) -> bool {
        let (tokens, cost) = self.shares(document);
        cost >= tokens
    }
}

/// Returns the documents that have a size, the largest first, and those of one size in stream order.
fn order<K: Ord + Copy>(documents: &[Document], size: impl Fn(&Document) -> Option<K>) -> Vec<u32> {
    let mut order: Vec<(Reverse<K>, u32)> = (0..)
        .zip(documents)
        .filter_map(|(index, document)| Some((Reverse(size(document)?), index)))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}
