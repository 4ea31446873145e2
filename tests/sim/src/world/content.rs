//! The content of every TGB: a function of its producer's name and its number alone, from which the
//! checks compute the expected data and checksums of each rank.

use std::sync::OnceLock;

use batchweave_core::crc::crc32c;
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, ProducerName, Seq, StreamId};
use batchweave_core::tgb::{Digest, Dtype, Identity, Layout, ObjectBuilder, TgbRecord};
use bytes::Bytes;

/// Slices per TGB in every simulated stream.
pub(crate) const SLICES: u32 = 4;

/// Tokens of a row, and of the long slice that some TGBs have. Frames of different sizes need an
/// index.
const WIDTHS: [u64; 2] = [9, 129];

static LAYOUTS: OnceLock<[Layout; 2]> = OnceLock::new();

fn layout(long: bool) -> &'static Layout {
    let layouts = LAYOUTS.get_or_init(|| {
        WIDTHS.map(|width| match Layout::tokens(Dtype::U16, 1, width) {
            Ok(layout) => layout,
            Err(e) => unreachable!("{e}"),
        })
    });
    &layouts[usize::from(long)]
}

/// Returns the payload of a slice, which ends with the array's data.
fn payload(name: &ProducerName, seq: Seq, slice: u32) -> Vec<u8> {
    let long = seq % 4 == 3 && slice == 1;
    let words = crate::trace::fnv(name.as_str().as_bytes())
        .wrapping_mul(31)
        .wrapping_add(seq)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(slice));
    let width = WIDTHS[usize::from(long)];
    let tokens: Vec<u32> = (0..width)
        .map(|n| (words.rotate_left(n as u32 * 7) as u32).wrapping_add(n as u32) & 0xffff)
        .collect();
    match layout(long).encode_tokens(&tokens) {
        Ok(payload) => payload,
        Err(e) => unreachable!("{e}"),
    }
}

/// Returns the CRC32C of a slice's payload, as ledgers record it.
pub(crate) fn crc(name: &ProducerName, seq: Seq, slice: u32) -> u32 {
    crc32c(&payload(name, seq, slice))
}

/// Returns the CRC32C of a slice's data without the header, as a rank finds it in shared memory.
pub(crate) fn data_crc(name: &ProducerName, seq: Seq, slice: u32) -> u32 {
    let payload = payload(name, seq, slice);
    let header = layout(seq % 4 == 3 && slice == 1).header().len();
    crc32c(&payload[header..])
}

/// Returns the digest of TGB `seq`.
pub(crate) fn digest(name: &ProducerName, seq: Seq) -> Digest {
    Digest::from_crcs((0..SLICES).map(|slice| crc(name, seq, slice)))
}

/// Returns an object with the TGBs `first..first + count`, and their records.
pub(crate) fn object(
    stream: StreamId,
    epoch: Epoch,
    name: &ProducerName,
    key: &str,
    first: Seq,
    count: u64,
) -> (Bytes, Vec<TgbRecord>) {
    let mut builder = ObjectBuilder::new(Identity::new(stream, name, epoch));
    for seq in first..first + count {
        let slices: Vec<_> = (0..SLICES).map(|slice| payload(name, seq, slice)).collect();
        if let Err(e) = builder.push_tgb(seq, &slices) {
            unreachable!("{e}");
        }
    }
    let object = match builder.finish(key) {
        Ok(object) => object,
        Err(e) => unreachable!("{e}"),
    };
    let record = |run: batchweave_core::tgb::SliceRun| TgbRecord {
        rows: u64::from(SLICES),
        tokens: u64::from(SLICES) * 8,
        digest: Digest::from_crcs(run.crcs),
        parts: vec![run.part],
        provenance: None,
        cost: None,
    };
    (object.bytes, object.runs.into_iter().map(record).collect())
}

/// Returns only the records of such an object.
pub(crate) fn tgbs(name: &ProducerName, key: &str, first: Seq, count: u64) -> Vec<TgbRecord> {
    object(StreamId([0; 16]), 0, name, key, first, count).1
}

/// Returns the cursor before TGB `seq`.
/// Bits of the random part of an object's key that are random; above them are the mixture and the stage that its TGBs were
/// made by.
const RANDOM_BITS: u32 = 40;
const MIXTURE_BITS: u32 = 16;

/// The mixture and the stage that a TGB is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MadeBy {
    pub(crate) mixture: u64,
    pub(crate) stage: u64,
}

impl MadeBy {
    /// Returns the random part of the key of an object with such TGBs.
    pub(crate) fn random_with(self, random: u64) -> u64 {
        let made_by = self.stage << MIXTURE_BITS | self.mixture;
        random >> (u64::BITS - RANDOM_BITS) | made_by << RANDOM_BITS
    }

    /// Reads it from the key of an object.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        let random = key.rsplit('.').nth(2)?;
        let made_by = u64::from_str_radix(random, 16).ok()? >> RANDOM_BITS;
        Some(Self {
            mixture: made_by & ((1 << MIXTURE_BITS) - 1),
            stage: made_by >> MIXTURE_BITS,
        })
    }
}

pub(crate) fn cursor(seq: Seq) -> Cursor {
    match seq {
        0 => Cursor::default(),
        row => Cursor(serde_json::json!({ "row": row })),
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::tgb::check_object;

    use super::*;

    #[test]
    fn objects_are_whole_and_as_announced() {
        let name = "p1".parse().unwrap();
        let stream = StreamId::from_random([7; 16]);
        let (bytes, records) = object(stream, 2, &name, "data/p1/o", 2, 3);
        check_object(&bytes, "data/p1/o").unwrap();
        let indexed = |record: &TgbRecord| record.parts[0].index.is_some();
        assert_eq!(
            records.iter().map(indexed).collect::<Vec<_>>(),
            [false, true, false]
        );
        for (seq, record) in (2..).zip(&records) {
            assert_eq!(record.digest, digest(&name, seq));
            record.parts[0].check().unwrap();
        }
        assert_ne!(digest(&name, 2), digest(&name, 6));
        assert_ne!(digest(&name, 2), digest(&"p2".parse().unwrap(), 2));
    }
}
