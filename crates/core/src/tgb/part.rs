//! A TGB in the log: its rows, tokens, digest, and the location of its slices.

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::{ALIGN_BYTES, ENTRY_BYTES, HEADER_BYTES};
use crate::ids::Hash;
use crate::limits::{
    NUMBER_MAX, OBJECT_BYTES_MAX, SLICES_MAX, TGB_PARTS_MAX, TGB_ROWS_MAX, TGB_TOKENS_MAX,
};

/// Separates digests from SHA-256 of the same bytes elsewhere.
const DIGEST_DOMAIN: &[u8] = b"batchweave tgb digest 1\n";

/// SHA-256 over a domain line and the CRC32C of each slice's payload, in slice order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Hash", into = "Hash")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Returns the digest of a TGB whose slices have these checksums, from slice 0 on.
    pub fn from_crcs(crcs: impl IntoIterator<Item = u32>) -> Self {
        let mut sha = sha2::Sha256::new_with_prefix(DIGEST_DOMAIN);
        for crc in crcs {
            sha.update(crc.to_le_bytes());
        }
        Self(sha.finalize().into())
    }
}

impl From<Hash> for Digest {
    fn from(hash: Hash) -> Self {
        Self(hash.0)
    }
}

impl From<Digest> for Hash {
    fn from(digest: Digest) -> Self {
        Self(digest.0)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Hash(self.0).fmt(f)
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Hash(self.0).fmt(f)
    }
}

/// Consecutive slices of one TGB that are adjacent in one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectPart {
    pub key: String,
    /// The offset of the first frame.
    pub offset: u64,
    /// Bytes of all frames.
    pub length: u64,
    pub first_slice: u32,
    pub slices: u32,
    /// Set when all frames have this size: frame i starts at `offset + i * frame_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_bytes: Option<u64>,
    /// Set otherwise: the offset of the first frame's index entry; the others follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// One TGB in a batch entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TgbRecord {
    /// Rows in all slices together.
    pub rows: u64,
    /// Tokens in all slices together, as the producer counts them.
    pub tokens: u64,
    /// The digest over all slices' checksums.
    pub digest: Digest,
    /// The parts in slice order, from slice 0 on, without gaps.
    pub parts: Vec<ObjectPart>,
    /// Key of the provenance object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<String>,
    /// Of a balanced stream: the cost of its slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<SliceCost>,
}

/// The cost of a TGB's slices, in 1/65,536 of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceCost {
    /// Of the dearest slice.
    pub max: u64,
    /// The mean, rounded down.
    pub mean: u64,
}

impl SliceCost {
    /// Returns the cost of the dearest slice over the mean.
    pub fn imbalance(self) -> f64 {
        if self.mean == 0 {
            return 1.0;
        }
        self.max as f64 / self.mean as f64
    }
}

/// A fault of a TGB in a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// Not 1 to `TGB_PARTS_MAX` parts.
    #[error("a TGB has 1 to {TGB_PARTS_MAX} parts, not {0}")]
    Count(usize),
    /// A part without slices or with too many.
    #[error("{key}: a part has 1 to {SLICES_MAX} slices, not {slices}")]
    Slices { key: String, slices: u32 },
    /// Parts overlap, leave a gap or are out of order.
    #[error("{key}: this part starts at slice {found}, the one before it ends at slice {expected}")]
    Gap {
        key: String,
        expected: u64,
        found: u32,
    },
    /// The parts hold another number of slices than the stream has.
    #[error("the parts hold {found} slices, the stream has {expected} a TGB")]
    Total { expected: u32, found: u64 },
    /// Neither or both of `frame_bytes` and `index`.
    #[error("{key}: a part has either frame_bytes or index")]
    Lookup { key: String },
    /// Offset or sizes are not multiples of 64 (8 for `index`), or too small for the slices.
    #[error(
        "{key}: offset {offset}, length {length} and frame size or index do not fit {slices} slices"
    )]
    Geometry {
        key: String,
        offset: u64,
        length: u64,
        slices: u32,
    },
    /// Beyond the largest object.
    #[error("{key}: ends beyond byte {OBJECT_BYTES_MAX}, the largest object")]
    TooFar { key: String },
    /// More rows or tokens than the format allows, or no row.
    #[error(
        "a TGB has 1 to {TGB_ROWS_MAX} rows and at most {TGB_TOKENS_MAX} tokens, not {rows} and {tokens}"
    )]
    Size { rows: u64, tokens: u64 },
    /// A mean above the dearest slice, or a number that the format does not allow.
    #[error("the dearest slice costs {}, and the mean is {}: expected at most that, below 2^53", cost.max, cost.mean)]
    Cost { cost: SliceCost },
}

impl ObjectPart {
    /// Returns the slice after the last one.
    pub fn end_slice(&self) -> u32 {
        self.first_slice.saturating_add(self.slices)
    }

    /// Returns the offset after the last frame.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Checks all that can be checked without the object. Later arithmetic relies on it.
    pub fn check(&self) -> Result<(), PartError> {
        let key = || self.key.clone();
        if self.slices == 0 || self.slices > SLICES_MAX || self.first_slice > SLICES_MAX {
            return Err(PartError::Slices {
                key: key(),
                slices: self.slices,
            });
        }
        let index_end = self
            .index
            .map_or(0, |at| at.saturating_add(self.index_bytes()));
        if self.end().max(index_end) > OBJECT_BYTES_MAX {
            return Err(PartError::TooFar { key: key() });
        }
        let slices = u64::from(self.slices);
        let whole = |n: u64| n.is_multiple_of(ALIGN_BYTES);
        let fits = match (self.frame_bytes, self.index) {
            (Some(size), None) => {
                size >= HEADER_BYTES && whole(size) && size.checked_mul(slices) == Some(self.length)
            }
            (None, Some(at)) => {
                self.length >= slices * HEADER_BYTES && at.is_multiple_of(8) && at >= self.end()
            }
            _ => return Err(PartError::Lookup { key: key() }),
        };
        if fits && whole(self.offset) && whole(self.length) {
            return Ok(());
        }
        Err(self.geometry_error())
    }

    fn geometry_error(&self) -> PartError {
        PartError::Geometry {
            key: self.key.clone(),
            offset: self.offset,
            length: self.length,
            slices: self.slices,
        }
    }

    /// Returns the bytes of this part's index entries.
    pub fn index_bytes(&self) -> u64 {
        u64::from(self.slices) * ENTRY_BYTES
    }
}

impl TgbRecord {
    /// Checks the record for a stream with `slices` slices per TGB.
    pub fn check(&self, slices: u32) -> Result<(), PartError> {
        if self.rows == 0 || self.rows > TGB_ROWS_MAX || self.tokens > TGB_TOKENS_MAX {
            return Err(PartError::Size {
                rows: self.rows,
                tokens: self.tokens,
            });
        }
        if let Some(cost) = self.cost
            && (cost.mean > cost.max || cost.max >= NUMBER_MAX)
        {
            return Err(PartError::Cost { cost });
        }
        if self.parts.is_empty() || self.parts.len() > TGB_PARTS_MAX {
            return Err(PartError::Count(self.parts.len()));
        }
        let mut expected = 0_u64;
        for part in &self.parts {
            part.check()?;
            if u64::from(part.first_slice) != expected {
                let found = part.first_slice;
                return Err(PartError::Gap {
                    key: part.key.clone(),
                    expected,
                    found,
                });
            }
            expected += u64::from(part.slices);
        }
        if expected != u64::from(slices) {
            return Err(PartError::Total {
                expected: slices,
                found: expected,
            });
        }
        Ok(())
    }

    /// Returns the bytes of all frames.
    pub fn bytes(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |sum, part| sum.saturating_add(part.length))
    }
}

const _: () = assert!(OBJECT_BYTES_MAX < NUMBER_MAX);

#[cfg(test)]
mod tests;
