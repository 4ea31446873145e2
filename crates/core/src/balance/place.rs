//! Documents into bins: the largest first, each into the bin with the fewest tokens that has room. Where documents may
//! be dear without being long, those that are go into the cheapest bin instead, so that long documents and dear ones
//! meet in a bin.

use std::cmp::Reverse;

use super::ranked::Ranked;
use super::{BalanceSettings, Document};

/// The bin of a document that fits nowhere.
pub(super) const NOWHERE: u32 = u32::MAX;
/// The cheapest bins that are tried for a dear document, before the one with the fewest tokens.
const TRIES: usize = 16;

/// The content of a bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bin {
    /// Tokens, where an empty document counts as one.
    pub(super) filled: u64,
    pub(super) cost: u64,
}

impl Bin {
    pub(super) fn has_room(self, settings: &BalanceSettings, document: &Document) -> bool {
        self.filled + document.room() <= u64::from(settings.tokens)
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

/// The bin of each document, and what the bins hold.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) bins: Vec<Bin>,
    /// The bin of each document, or [`NOWHERE`].
    pub(super) bin_of: Vec<u32>,
}

impl Placement {
    /// Places documents into this number of bins: first those that an earlier window carried, then the others.
    pub(super) fn new(settings: &BalanceSettings, documents: &[Document], bins: usize) -> Self {
        let mut placement = Self {
            bins: vec![Bin::default(); bins],
            bin_of: vec![NOWHERE; documents.len()],
        };
        let measure = settings
            .by_cost
            .then(|| Measure::new(settings, documents, bins));
        // By their tokens alone: in this order they fit (header of the folder).
        let mut places = order(documents, |d| d.carried.then_some(d.tokens));
        places.extend(match measure {
            None => order(documents, |d| (!d.carried).then_some(d.tokens)),
            Some(measure) => order(documents, |d| (!d.carried).then(|| measure.size(d))),
        });
        placement.place(settings, documents, &places, measure);
        placement
    }

    fn place(
        &mut self,
        settings: &BalanceSettings,
        documents: &[Document],
        places: &[u32],
        measure: Option<Measure>,
    ) {
        let bins = &mut self.bins;
        let mut by_tokens = Ranked::new(bins.iter().map(|bin| bin.filled));
        let mut by_cost = Ranked::new(bins.iter().map(|bin| bin.cost));
        for &index in places {
            let document = &documents[index as usize];
            let has_room = |bin: u32| bins[bin as usize].has_room(settings, document);
            let dear = measure.is_some_and(|measure| measure.is_dear(document));
            let cheapest = dear
                .then(|| by_cost.take(TRIES, |bin| bins[bin as usize].cost, has_room))
                .flatten();
            // If the bin with the fewest tokens has no room, none has.
            let to =
                cheapest.or_else(|| by_tokens.take(1, |bin| bins[bin as usize].filled, has_room));
            let Some(to) = to else { continue };
            let bin = &mut bins[to as usize];
            bin.put(document);
            if cheapest.is_some() {
                by_cost.insert(bin.cost, to);
            } else {
                by_tokens.insert(bin.filled, to);
            }
            self.bin_of[index as usize] = to;
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
