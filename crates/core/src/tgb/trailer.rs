//! The trailer: the last 64 bytes of an object, with its identity and the offset of its index.

use super::error::Fault;
use super::frame::{check_crc, check_magic, identity_at};
use super::{ENTRY_BYTES, Identity, TGB_VERSION, TRAILER_BYTES, bytes_at, u32_at, u64_at};
use crate::crc::crc32c;
use crate::ids::Seq;

const MAGIC: [u8; 3] = *b"BWT";
const CRC_AT: usize = 56;

/// The trailer of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    pub identity: Identity,
    /// The first TGB that has slices in the object.
    pub first_seq: Seq,
    /// Number of TGBs, numbered consecutively from the first.
    pub tgbs: u32,
    pub frames: u32,
    /// The offset of the index, which is the end of the frames.
    pub index_offset: u64,
}

impl Trailer {
    /// Returns the stored form.
    pub fn encode(&self) -> [u8; TRAILER_BYTES as usize] {
        let mut out = [0; TRAILER_BYTES as usize];
        out[..16].copy_from_slice(&self.identity.stream.0);
        out[16..24].copy_from_slice(&self.identity.producer.to_le_bytes());
        out[24..32].copy_from_slice(&self.identity.epoch.to_le_bytes());
        out[32..40].copy_from_slice(&self.first_seq.to_le_bytes());
        out[40..48].copy_from_slice(&self.index_offset.to_le_bytes());
        out[48..52].copy_from_slice(&self.tgbs.to_le_bytes());
        out[52..56].copy_from_slice(&self.frames.to_le_bytes());
        let crc = crc32c(&out[..CRC_AT]);
        out[CRC_AT..60].copy_from_slice(&crc.to_le_bytes());
        out[60..63].copy_from_slice(&MAGIC);
        out[63] = TGB_VERSION;
        out
    }

    /// Decodes the trailer at the end of `bytes`, which are the object or its last bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let what = "a trailer";
        let Some((_, tail)) = bytes.split_last_chunk::<{ TRAILER_BYTES as usize }>() else {
            return Err(Fault::Truncated {
                what,
                need: TRAILER_BYTES,
                have: bytes.len() as u64,
            });
        };
        check_magic(what, bytes_at(tail, 60), MAGIC)?;
        check_crc(what, tail, CRC_AT)?;
        Ok(Self {
            identity: identity_at(tail, 0),
            first_seq: u64_at(tail, 32),
            index_offset: u64_at(tail, 40),
            tgbs: u32_at(tail, 48),
            frames: u32_at(tail, 52),
        })
    }

    /// Returns the bytes of the whole object; saturates, since the fields may hold anything.
    pub fn object_bytes(&self) -> u64 {
        let index = u64::from(self.frames) * ENTRY_BYTES;
        self.index_offset.saturating_add(index + TRAILER_BYTES)
    }
}
