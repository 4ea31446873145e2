//! An index entry: the location of one frame in its object. Each has its own checksum, so that a reader may
//! fetch only the entries of its slices.

use super::error::Fault;
use super::frame::check_crc;
use super::{ENTRY_BYTES, u32_at, u64_at};
use crate::crc::crc32c;
use crate::ids::Seq;

const CRC_AT: usize = 36;

/// One frame in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub seq: Seq,
    /// The offset of the frame in the object.
    pub offset: u64,
    /// Bytes of the payload, without header and padding.
    pub payload_bytes: u64,
    pub slice: u32,
    /// CRC32C of the payload: a TGB's digest can be computed from the index alone.
    pub payload_crc: u32,
}

impl IndexEntry {
    /// Returns the stored form.
    pub fn encode(&self) -> [u8; ENTRY_BYTES as usize] {
        let mut out = [0; ENTRY_BYTES as usize];
        out[..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[24..28].copy_from_slice(&self.slice.to_le_bytes());
        out[28..32].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes and checks one entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let what = "an index entry";
        let Some(entry) = bytes.get(..ENTRY_BYTES as usize) else {
            return Err(Fault::Truncated {
                what,
                need: ENTRY_BYTES,
                have: bytes.len() as u64,
            });
        };
        check_crc(what, entry, CRC_AT)?;
        if u32_at(entry, 32) != 0 {
            return Err(Fault::NotZero {
                what: "the reserved field of an index entry",
            });
        }
        Ok(Self {
            seq: u64_at(entry, 0),
            offset: u64_at(entry, 8),
            payload_bytes: u64_at(entry, 16),
            slice: u32_at(entry, 24),
            payload_crc: u32_at(entry, 28),
        })
    }
}
