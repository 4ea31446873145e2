//! A batch that comes slice by slice, because it may be larger than an object: its slices are gathered
//! until they fill one, so that a batch of any size takes the memory of some objects.
//!
//! Where it is cut depends on its slices alone. Objects grow with their number: what the log says of
//! a batch stays small, and what is held in memory grows far more slowly than the batch.

use batchweave_core::provenance::Block;

use crate::packing::{BatchContent, PackedBatch};

/// The n-th object of a batch may be 1 + n / 16 times as large as the first.
const GROWS_OVER: u64 = 16;
/// From this one on they double every eight: nothing that is ever made has more than 256.
const DOUBLES_FROM: u64 = 128;
const DOUBLES_OVER: u64 = 8;
/// A batch whose size is known beforehand has at most so many.
const EVEN_PARTS: u64 = 64;

/// One object's part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPart {
    /// Which of the batch's objects it is.
    pub number: u32,
    /// Its first slice.
    pub first_slice: u32,
    /// Drawn once a batch: keys of its objects share it.
    pub random: u64,
    /// It has the batch's last slice. Then: what the whole batch was made from, in its stored form.
    pub last: Option<Vec<u8>>,
}

/// What the cutter gives.
pub(super) enum Split {
    /// These slices fill an object; the last of them stands where the part ends.
    Part(Vec<PackedBatch>, BatchPart),
    /// All slices together are small enough to share an object.
    Whole(PackedBatch),
}

/// See the file's header.
#[derive(Debug)]
pub(super) struct BatchSplitter {
    slices: u32,
    object_bytes: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    random: u64,
    block: Block,
    /// Parts that are cut already.
    parts: u32,
    first_slice: u32,
    /// What waits for the next cut.
    units: Vec<PackedBatch>,
    bytes: u64,
}

impl BatchSplitter {
    /// Of batches with so many slices; whole ones have at most `object_bytes`. `batch_bytes`: their
    /// size, where all have the same.
    pub(super) fn new(slices: u32, object_bytes: u64, batch_bytes: Option<u64>) -> Self {
        let even = batch_bytes.map_or(0, |bytes| bytes.div_ceil(EVEN_PARTS));
        Self {
            slices,
            object_bytes: object_bytes.max(even),
            open: None,
        }
    }

    /// Whether some slices of a batch are here or gone up, and others are missing.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Samples or tokens of the batch that is not complete, as far as they wait here.
    pub(super) fn waiting(&self) -> u64 {
        let units = self.open.iter().flat_map(|open| &open.units);
        units.map(|unit| unit.own).sum()
    }

    /// Takes the next slice, whose frame has `bytes`.
    pub(super) fn push(&mut self, unit: PackedBatch, bytes: u64, cuts: &mut Vec<Split>) {
        let open = self.open.get_or_insert_with(|| Open {
            random: rand::random(),
            block: Block::new(unit.sources.form),
            parts: 0,
            first_slice: 0,
            units: Vec::new(),
            bytes: 0,
        });
        let full = open.bytes.saturating_add(bytes) > allowed(self.object_bytes, open.parts);
        if full && !open.units.is_empty() {
            cuts.push(open.cut(false));
        }
        open.units.push(unit);
        open.bytes = open.bytes.saturating_add(bytes);
        if open.first_slice as usize + open.units.len() < self.slices as usize {
            return;
        }
        if let Some(mut open) = self.open.take() {
            let samples = |unit: &PackedBatch| matches!(unit.content, BatchContent::Samples(_));
            let whole = open.parts == 0 && open.units.iter().all(samples);
            cuts.push(if whole && open.bytes <= self.object_bytes {
                Split::Whole(join(open.units))
            } else {
                open.cut(true)
            });
        }
    }
}

impl Open {
    fn cut(&mut self, last: bool) -> Split {
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

/// The batch that has these slices; they are samples.
fn join(units: Vec<PackedBatch>) -> PackedBatch {
    let mut units = units.into_iter();
    let Some(mut whole) = units.next() else {
        return PackedBatch::default();
    };
    for unit in units {
        if let (BatchContent::Samples(all), BatchContent::Samples(more)) =
            (&mut whole.content, unit.content)
        {
            all.extend(more);
        }
        whole.sources.pieces.extend(unit.sources.pieces);
        whole.own += unit.own;
        whole.next = unit.next;
    }
    whole
}

/// Bytes of a batch's n-th object.
fn allowed(object_bytes: u64, n: u32) -> u64 {
    let n = u64::from(n);
    let bytes = object_bytes.saturating_add(object_bytes.saturating_mul(n) / GROWS_OVER);
    let doubled = n.saturating_sub(DOUBLES_FROM) / DOUBLES_OVER;
    bytes.saturating_mul(1 << doubled.min(32))
}

#[cfg(test)]
mod tests;
