//! Building objects: one TGB or several in one, or one TGB over several.

use bytes::Bytes;

use super::{
    ALIGN_BYTES, Digest, FrameHeader, HEADER_BYTES, Identity, IndexEntry, ObjectPart, TgbRecord,
    Trailer, frame_bytes,
};
use crate::crc::crc32c;
use crate::ids::Seq;
use crate::limits::{OBJECT_BYTES_MAX, SLICES_MAX};

/// A caller's mistake while building an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// TGBs, and the slices of one, must be numbered without gaps.
    #[error("TGB {seq} slice {slice} can't follow TGB {last_seq} slice {last_slice} in an object")]
    Order {
        seq: Seq,
        slice: u32,
        last_seq: Seq,
        last_slice: u32,
    },
    /// A TGB or an object without slices.
    #[error("TGB {seq} has no slices")]
    Empty { seq: Seq },
    /// Beyond the format's bounds.
    #[error("TGB {seq}: more than {SLICES_MAX} slices or {OBJECT_BYTES_MAX} bytes in an object")]
    TooLarge { seq: Seq },
}

/// The slices of one TGB that one object holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceRun {
    pub seq: Seq,
    /// The location of the slices.
    pub part: ObjectPart,
    /// CRC32C of each slice's payload.
    pub crcs: Vec<u32>,
}

/// A finished object with its key and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub bytes: Bytes,
    /// Its slices, in order.
    pub runs: Vec<SliceRun>,
}

/// Builds one object from slices in order.
#[derive(Debug)]
pub struct ObjectBuilder {
    identity: Identity,
    /// Written up to `end`; the rest may hold anything.
    bytes: Vec<u8>,
    end: usize,
    entries: Vec<IndexEntry>,
}

impl ObjectBuilder {
    /// Returns a builder of an empty object of `identity`.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            bytes: Vec::new(),
            end: 0,
            entries: Vec::new(),
        }
    }

    /// Reserves memory before the first slice, so that a large object is not copied as it grows.
    #[must_use]
    pub fn reserve(mut self, frame_bytes: u64) -> Self {
        let room = frame_bytes as usize;
        if self.bytes.capacity() < room {
            // The system returns large memory zeroed at first touch.
            self.bytes = vec![0; room];
        }
        self
    }

    /// Builds in `bytes`, which may hold anything: memory that was used before is cheaper than new memory.
    #[must_use]
    pub fn within(mut self, bytes: Vec<u8>) -> Self {
        self.bytes = bytes;
        self
    }

    /// Returns the bytes of frames so far.
    pub fn frame_bytes(&self) -> u64 {
        self.end as u64
    }

    /// Returns whether no slice was added yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds all slices of the TGB `seq`.
    pub fn push_tgb<S: AsRef<[u8]>>(&mut self, seq: Seq, slices: &[S]) -> Result<(), BuildError> {
        if slices.is_empty() {
            return Err(BuildError::Empty { seq });
        }
        (0..)
            .zip(slices)
            .try_for_each(|(slice, payload)| self.push_slice(seq, slice, payload.as_ref()))
    }

    /// Adds one slice: the next of the same TGB, or the first of the next.
    pub fn push_slice(&mut self, seq: Seq, slice: u32, payload: &[u8]) -> Result<(), BuildError> {
        self.push_slice_with(seq, slice, payload.len() as u64, |room| {
            room.copy_from_slice(payload);
            Ok(())
        })
    }

    /// Like `push_slice`; `write` fills the payload in place and must write all of it, since the memory may
    /// hold anything. After an error the builder must not be used.
    pub fn push_slice_with<E: From<BuildError>>(
        &mut self,
        seq: Seq,
        slice: u32,
        payload_bytes: u64,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_next(seq, slice, payload_bytes)?;
        let offset = self.frame_bytes();
        let begin = self.end + HEADER_BYTES as usize;
        let end = begin + payload_bytes as usize;
        let next = end.next_multiple_of(ALIGN_BYTES as usize);
        if self.bytes.len() < next {
            self.bytes.resize(next, 0);
        }
        write(&mut self.bytes[begin..end])?;
        // Summed while it is still in the CPU caches.
        let payload_crc = crc32c(&self.bytes[begin..end]);
        let header = FrameHeader {
            identity: self.identity,
            seq,
            slice,
            payload_bytes,
            payload_crc,
        };
        self.bytes[offset as usize..begin].copy_from_slice(&header.encode());
        self.bytes[end..next].fill(0);
        self.end = next;
        self.entries.push(IndexEntry {
            seq,
            offset,
            payload_bytes,
            slice,
            payload_crc,
        });
        Ok(())
    }

    fn check_next(&self, seq: Seq, slice: u32, payload_bytes: u64) -> Result<(), BuildError> {
        if let Some(last) = self.entries.last() {
            let goes_on = last.seq == seq && last.slice.checked_add(1) == Some(slice);
            if !goes_on && (last.seq.checked_add(1) != Some(seq) || slice != 0) {
                let (last_seq, last_slice) = (last.seq, last.slice);
                return Err(BuildError::Order {
                    seq,
                    slice,
                    last_seq,
                    last_slice,
                });
            }
        }
        let end = self
            .frame_bytes()
            .saturating_add(payload_bytes)
            .saturating_add(HEADER_BYTES + ALIGN_BYTES);
        let full = self.entries.len() >= u32::MAX as usize;
        if slice >= SLICES_MAX || end > OBJECT_BYTES_MAX / 2 || full {
            return Err(BuildError::TooLarge { seq });
        }
        Ok(())
    }

    /// Adds index and trailer. `key` is stored in the parts.
    pub fn finish(self, key: &str) -> Result<Object, BuildError> {
        self.finish_as(key, Bytes::from)
    }

    /// Like `finish`; `share` converts the built bytes.
    pub fn finish_as(
        mut self,
        key: &str,
        share: impl FnOnce(Vec<u8>) -> Bytes,
    ) -> Result<Object, BuildError> {
        let (Some(first), Some(last)) = (self.entries.first(), self.entries.last()) else {
            return Err(BuildError::Empty { seq: 0 });
        };
        let index_offset = self.frame_bytes();
        self.bytes.truncate(self.end);
        let trailer = Trailer {
            identity: self.identity,
            first_seq: first.seq,
            tgbs: (last.seq - first.seq + 1) as u32,
            frames: self.entries.len() as u32,
            index_offset,
        };
        for entry in &self.entries {
            self.bytes.extend_from_slice(&entry.encode());
        }
        self.bytes.extend_from_slice(&trailer.encode());
        let mut index = index_offset;
        let chunks = self.entries.chunk_by(|a, b| a.seq == b.seq);
        let runs = chunks
            .map(|entries| {
                let run = run(key, entries, index);
                index += run.part.index_bytes();
                run
            })
            .collect();
        Ok(Object {
            key: key.to_owned(),
            bytes: share(self.bytes),
            runs,
        })
    }
}

/// Describes the slices of `entries`, which are of one TGB and not empty; their index begins at `index` in
/// the object.
fn run(key: &str, entries: &[IndexEntry], index: u64) -> SliceRun {
    let size = |e: &IndexEntry| frame_bytes(e.payload_bytes).unwrap_or(u64::MAX);
    let first = entries[0];
    let equal = entries.iter().all(|e| size(e) == size(&first));
    let part = ObjectPart {
        key: key.to_owned(),
        offset: first.offset,
        length: entries.iter().map(size).sum(),
        first_slice: first.slice,
        slices: entries.len() as u32,
        frame_bytes: equal.then(|| size(&first)),
        index: (!equal).then_some(index),
    };
    SliceRun {
        seq: first.seq,
        part,
        crcs: entries.iter().map(|e| e.payload_crc).collect(),
    }
}

/// A TGB before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TgbData {
    pub seq: Seq,
    /// Rows in all slices.
    pub rows: u64,
    /// Tokens in all slices.
    pub tokens: u64,
    /// Key of the provenance object.
    pub provenance: Option<String>,
    /// The payload of each slice, from slice 0 on.
    pub slices: Vec<Bytes>,
}

/// Objects to upload, and the records to commit after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub objects: Vec<Object>,
    /// One record for each TGB, in order.
    pub tgbs: Vec<TgbRecord>,
}

/// Packs consecutive TGBs into objects of about `object_bytes`: small TGBs share an object, a larger one is
/// split between slices. `key` returns the key of the set's n-th object.
pub fn pack(
    identity: Identity,
    tgbs: &[TgbData],
    object_bytes: u64,
    mut key: impl FnMut(u32) -> String,
) -> Result<Packed, BuildError> {
    let mut objects: Vec<Object> = Vec::new();
    let total = frames_size(tgbs.iter().flat_map(|tgb| &tgb.slices));
    let fresh = || ObjectBuilder::new(identity).reserve(object_bytes.min(total));
    let mut open = fresh();
    for tgb in tgbs {
        if tgb.slices.is_empty() {
            return Err(BuildError::Empty { seq: tgb.seq });
        }
        let whole = frames_size(&tgb.slices);
        let cut = whole > object_bytes;
        for (slice, payload) in (0..).zip(&tgb.slices) {
            // A TGB that fits in one object is not split: its first slice asks for room for all.
            let needs = match (cut, slice) {
                (true, _) => frame_size(payload),
                (false, 0) => whole,
                (false, _) => 0,
            };
            if !open.is_empty() && open.frame_bytes().saturating_add(needs) > object_bytes {
                let full = std::mem::replace(&mut open, fresh());
                objects.push(full.finish(&key(objects.len() as u32))?);
            }
            open.push_slice(tgb.seq, slice, payload)?;
        }
    }
    if !open.is_empty() {
        objects.push(open.finish(&key(objects.len() as u32))?);
    }
    let tgbs = tgbs.iter().map(|tgb| record(tgb, &objects)).collect();
    Ok(Packed { objects, tgbs })
}

fn frame_size(payload: &Bytes) -> u64 {
    frame_bytes(payload.len() as u64).unwrap_or(u64::MAX)
}

fn frames_size<'a>(payloads: impl IntoIterator<Item = &'a Bytes>) -> u64 {
    let sizes = payloads.into_iter().map(frame_size);
    sizes.fold(0, u64::saturating_add)
}

fn record(tgb: &TgbData, objects: &[Object]) -> TgbRecord {
    let runs = || {
        objects
            .iter()
            .flat_map(|o| &o.runs)
            .filter(|run| run.seq == tgb.seq)
    };
    TgbRecord {
        rows: tgb.rows,
        tokens: tgb.tokens,
        digest: Digest::from_crcs(runs().flat_map(|run| run.crcs.iter().copied())),
        parts: runs().map(|run| run.part.clone()).collect(),
        provenance: tgb.provenance.clone(),
        cost: None,
    }
}
