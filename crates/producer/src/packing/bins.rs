//! Bins: documents side by side without padding, one bin per micro-batch of a slice.

use batchweave_core::tgb::SliceCost;

use super::Segment;

/// The bins of a batch or of some of its slices, slice by slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bins {
    /// The tokens of all bins, one after another.
    pub tokens: Vec<u32>,
    /// For each token whether it is learned.
    pub learned: Vec<bool>,
    /// The documents; `row` is the number of the bin, and `start` counts from its beginning.
    pub segments: Vec<Segment>,
    pub ends: Vec<BinEnd>,
    /// Number of learned tokens of the whole batch.
    pub loss_tokens: u64,
    /// The cost of the slices of the whole batch.
    pub cost: SliceCost,
    /// Number of documents, or of pieces of them, that the window before had no room for.
    pub late: u64,
}

/// The place where a bin ends, and its cost in 1/65,536 of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BinEnd {
    /// Index behind its last token.
    pub token: usize,
    /// Index behind its last document.
    pub segment: usize,
    pub cost: u64,
}

impl Bins {
    /// Returns the place where bin `bin` begins.
    fn start(&self, bin: usize) -> BinEnd {
        let before = bin.checked_sub(1).and_then(|bin| self.ends.get(bin));
        before.copied().unwrap_or_default()
    }

    /// Returns some neighbouring bins.
    pub(super) fn range(&self, first: usize, count: usize) -> BinRange<'_> {
        let ends = self.ends.get(first..first + count).unwrap_or_default();
        let (start, end) = (self.start(first), self.start(first + ends.len()));
        BinRange {
            tokens: &self.tokens[start.token..end.token],
            learned: &self.learned[start.token..end.token],
            segments: &self.segments[start.segment..end.segment],
            ends,
            start,
        }
    }

    /// Appends the bins of the next slices of the same batch.
    pub(crate) fn append(&mut self, more: Self) {
        let (bins, tokens, segments) = (self.ends.len(), self.tokens.len(), self.segments.len());
        self.late += more.late;
        self.tokens.extend(more.tokens);
        self.learned.extend(more.learned);
        self.segments
            .extend(more.segments.into_iter().map(|segment| Segment {
                row: bins + segment.row,
                ..segment
            }));
        self.ends.extend(more.ends.into_iter().map(|end| BinEnd {
            token: tokens + end.token,
            segment: segments + end.segment,
            cost: end.cost,
        }));
    }
}

/// The content of neighbouring bins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BinRange<'a> {
    pub(super) tokens: &'a [u32],
    pub(super) learned: &'a [bool],
    pub(super) segments: &'a [Segment],
    ends: &'a [BinEnd],
    start: BinEnd,
}

impl<'a> BinRange<'a> {
    /// Returns the index behind the last token of each bin, counted from the first bin.
    pub(super) fn token_ends(&self) -> impl Iterator<Item = usize> + 'a {
        let start = self.start.token;
        self.ends.iter().map(move |end| end.token - start)
    }

    /// Returns the index behind the last document of each bin, counted from the first bin.
    pub(super) fn segment_ends(&self) -> impl Iterator<Item = usize> + 'a {
        let start = self.start.segment;
        self.ends.iter().map(move |end| end.segment - start)
    }

    /// Returns the cost of each bin.
    pub(super) fn costs(&self) -> impl Iterator<Item = u64> + 'a {
        self.ends.iter().map(|end| end.cost)
    }
}
