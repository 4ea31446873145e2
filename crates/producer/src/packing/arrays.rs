//! Named arrays in a slice: the items of all samples or documents, and the offsets where those of each begin.

use batchweave_core::tgb::{Array, Dtype};
use bytes::Bytes;

use super::ArraySpec;

/// The arrays of one sample or document, in the order of their specs.
pub(super) type Arrays = [Bytes];

/// Returns name, type and shape of both stored arrays for each spec.
pub(super) fn shapes<'a>(
    specs: &[ArraySpec],
    all: impl ExactSizeIterator<Item = &'a Arrays> + Clone,
) -> Vec<(String, Dtype, Vec<u64>)> {
    let both = specs.iter().enumerate().flat_map(|(n, spec)| {
        let bytes: usize = all
            .clone()
            .map(|one| one.get(n).map_or(0, Bytes::len))
            .sum();
        let items = bytes as u64 / spec.item_bytes().max(1);
        let values = [&[items], &spec.shape[..]].concat();
        let offsets = vec![all.len() as u64 + 1];
        [
            (spec.name.clone(), spec.dtype, values),
            (spec.offsets(), Dtype::I64, offsets),
        ]
    });
    both.collect()
}

/// Returns most bytes that these arrays take in a slice, without its header.
pub(super) fn bytes<'a>(
    specs: &[ArraySpec],
    all: impl ExactSizeIterator<Item = &'a Arrays> + Clone,
) -> u64 {
    let offsets = 8 * specs.len() * (all.len() + 1);
    let data: usize = all.flatten().map(Bytes::len).sum();
    (data + offsets) as u64
}

/// Writes `array`, which is one of [`shapes`], into `data`. Returns false when it is another one.
pub(super) fn put<'a>(
    specs: &[ArraySpec],
    all: impl Iterator<Item = &'a Arrays>,
    array: &Array,
    data: &mut [u8],
) -> bool {
    if let Some(n) = specs.iter().position(|spec| spec.name == array.name) {
        let mut at = 0;
        for one in all.filter_map(|one| one.get(n)) {
            data[at..at + one.len()].copy_from_slice(one);
            at += one.len();
        }
        data[at..].fill(0);
    } else if let Some(n) = specs.iter().position(|spec| spec.offsets() == array.name) {
        let item = specs[n].item_bytes().max(1);
        let counts = all.map(|one| one.get(n).map_or(0, Bytes::len) as u64 / item);
        put_offsets(counts, data);
    } else {
        return false;
    }
    true
}

/// Writes where each of the parts of these lengths begins, and the end of the last one.
pub(super) fn put_offsets(lengths: impl Iterator<Item = u64>, data: &mut [u8]) {
    let (offsets, _) = data.as_chunks_mut::<8>();
    offsets.fill([0; 8]);
    let mut at = 0_i64;
    for (offset, length) in offsets.iter_mut().skip(1).zip(lengths) {
        at += length.cast_signed();
        *offset = at.to_le_bytes();
    }
}
