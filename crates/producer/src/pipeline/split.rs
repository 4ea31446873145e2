//! Splits a batch that may be larger than an object: gathers its slices until they fill an object, so that a batch
//! of any size needs the memory of a few objects. Pure.
//!
//! The split depends on the slices alone. Later objects of a batch are larger, so that its log entry stays small
//! while the memory grows far more slowly than the batch.

use batchweave_core::provenance::Block;

use crate::packing::{BatchContent, PackedBatch};

/// The n-th object of a batch may be 1 + n / 16 times as large as the first one,
const GROWS_OVER: u64 = 16;
/// and from this number on the limit doubles every eight objects, so that no batch has more than 256.
const DOUBLES_FROM: u64 = 128;
const DOUBLES_OVER: u64 = 8;
/// Most objects of a batch whose size is known beforehand.
const EVEN_PARTS: u64 = 64;

/// The part of a batch that one object holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPart {
    /// Index of the object among those of the batch.
    pub number: u32,
    pub first_slice: u32,
    /// Random number that the keys of all objects of the batch share.
    pub random: u64,
    /// With the last slice of the batch: the provenance of the whole batch, as it is stored.
    pub last: Option<Vec<u8>>,
}

/// A result of the splitter.
pub(super) enum Split {
    /// These slices fill an object.
    Part(Vec<PackedBatch>, BatchPart),
    /// All slices together are small enough to share an object.
    Whole(Box<PackedBatch>),
}

/// Splits batches into parts; see the header of this file.
#[derive(Debug)]
pub(super) struct BatchSplitter {
    slices: u32,
    object_bytes: u64,
    /// The size of batches is only known once they are made, so small ones come in slices too.
    any_size: bool,
    open: Option<OpenBatch>,
}

/// A batch of which some slices are missing.
#[derive(Debug)]
struct OpenBatch {
    random: u64,
    block: Block,
    /// Number of parts that were returned already.
    parts: u32,
    first_slice: u32,
    /// The slices of the next part.
    units: Vec<PackedBatch>,
    bytes: u64,
}

impl BatchSplitter {
    /// Returns a splitter for batches of `slices` slices. Parts have about `object_bytes`; `batch_bytes` is the size of
    /// a batch, where all have the same.
    pub(super) fn new(slices: u32, object_bytes: u64, batch_bytes: Option<u64>) -> Self {
        let even = batch_bytes.map_or(0, |bytes| bytes.div_ceil(EVEN_PARTS));
        Self {
            slices,
            object_bytes: object_bytes.max(even),
            any_size: batch_bytes.is_none(),
            open: None,
        }
    }

    /// Returns whether some slices of a batch were added and others are missing.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Adds the next slice, whose frame has `bytes`; appends the parts or the batch that it completes to `splits`.
    pub(super) fn push(&mut self, unit: PackedBatch, bytes: u64, splits: &mut Vec<Split>) {
        let open = self.open.get_or_insert_with(|| OpenBatch {
            random: rand::random(),
            block: Block::new(unit.sources.form),
            parts: 0,
            first_slice: 0,
            units: Vec::new(),
            bytes: 0,
        });
        let full = open.bytes.saturating_add(bytes) > allowed(self.object_bytes, open.parts);
        if full && !open.units.is_empty() {
            splits.push(open.split(false));
        }
        open.units.push(unit);
        open.bytes = open.bytes.saturating_add(bytes);
        if open.first_slice as usize + open.units.len() < self.slices as usize {
            return;
        }
        if let Some(mut open) = self.open.take() {
            let whole = open.parts == 0 && self.any_size;
            splits.push(if whole && open.bytes <= self.object_bytes {
                Split::Whole(Box::new(join(open.units)))
            } else {
                open.split(true)
            });
        }
    }
}

impl OpenBatch {
    fn split(&mut self, last: bool) -> Split {
        let units = std::mem::take(&mut self.units);
        for (n, unit) in (self.first_slice..).zip(&units) {
            self.block.slice(&unit.sources, n == 0);
        }
        let part = BatchPart {
            number: self.parts,
            first_slice: self.first_slice,
            random: self.random,
            last: last.then(|| self.block.clone().finish()),
        };
        self.parts += 1;
        self.first_slice += units.len() as u32;
        self.bytes = 0;
        Split::Part(units, part)
    }
}

/// Returns the batch of these slices.
fn join(units: Vec<PackedBatch>) -> PackedBatch {
    let mut rest = units.into_iter();
    let Some(mut whole) = rest.next() else {
        return PackedBatch::default();
    };
    for unit in rest {
        match (&mut whole.content, unit.content) {
            (BatchContent::Samples(all), BatchContent::Samples(more)) => all.extend(more),
            (BatchContent::Rows(all), BatchContent::Rows(more)) => all.append(more),
            (BatchContent::Bins(all), BatchContent::Bins(more)) => all.append(more),
            _ => {}
        }
        whole.sources.pieces.extend(unit.sources.pieces);
        whole.own += unit.own;
        whole.next = unit.next;
    }
    whole
}

/// Returns the most bytes of a batch's n-th object.
fn allowed(object_bytes: u64, n: u32) -> u64 {
    let n = u64::from(n);
    let bytes = object_bytes.saturating_add(object_bytes.saturating_mul(n) / GROWS_OVER);
    let doubled = n.saturating_sub(DOUBLES_FROM) / DOUBLES_OVER;
    bytes.saturating_mul(1 << doubled.min(32))
}

#[cfg(test)]
mod tests;
