//! The objects of a step: which of them are needed, and what their indexes hold of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::manifest::StepEntry;

use super::{Index, StepCrcs};

/// Adds the frames of a TGB that are in the object `key`.
pub(super) fn add((end, frames): &mut (u64, u64), key: &str, entry: &StepEntry) {
    for part in entry.tgb.parts.iter().filter(|part| part.key == key) {
        *end = part.end().max(*end);
        *frames += u64::from(part.slices);
    }
}

/// Returns the keys of a step's objects that hold some of `slices`, and which.
pub(super) fn needed<'e>(
    entry: &'e StepEntry,
    slices: &'e [Range<u32>],
) -> impl Iterator<Item = (&'e str, Range<u32>)> {
    entry.tgb.parts.iter().flat_map(move |part| {
        let common = slices.iter().map(move |s| {
            let (first, end) = (part.first_slice.max(s.start), part.end_slice().min(s.end));
            (part.key.as_str(), first..end)
        });
        common.filter(|(_, slices)| !slices.is_empty())
    })
}

/// Returns the checksums of a step's slices from the read indexes.
pub(super) fn pick(
    entry: &StepEntry,
    slices: &[Range<u32>],
    read: &BTreeMap<String, Result<Arc<Index>, String>>,
) -> StepCrcs {
    let mut crcs = BTreeMap::new();
    for part in &entry.tgb.parts {
        let own = |slice: &u32| slices.iter().any(|range| range.contains(slice));
        for slice in (part.first_slice..part.end_slice()).filter(own) {
            let index = match read.get(&part.key) {
                Some(Ok(index)) => index,
                Some(Err(why)) => return Err(why.clone()),
                None => continue,
            };
            let Some(crc) = index.crcs.get(&(entry.seq, slice)) else {
                let key = &part.key;
                let step = entry.step;
                return Err(format!(
                    "{key}: its index has no slice {slice} of step {step}"
                ));
            };
            crcs.insert(slice, *crc);
        }
    }
    Ok(crcs)
}
