//! The stored form of values: a header, then a block for each rank with its steps.
//!
//! All numbers are little-endian. 64 bytes of the object, 32 of a block, 24 of a step, 12 of a source and 8 of a row or
//! document: a run keeps millions of steps.

use std::collections::BTreeSet;

use super::{DetailLoss, DetailOf, SourceLoss, StepValues};
use crate::crc::crc32c;
use crate::error::FormatError;
use crate::ids::{AttemptId, Step, StreamId};
use crate::keys;
use crate::limits::VALUES_BYTES_MAX;

const MAGIC: [u8; 8] = *b"BWVALUE1";
const HEADER_BYTES: usize = 64;
/// The checksum covers all bytes behind it.
const CRC_AT: usize = 8;
const CRC_FROM: usize = 12;
pub(super) const STEP_BYTES: usize = 24;
pub(super) const SOURCE_BYTES: usize = 12;
pub(super) const DETAIL_BYTES: usize = 8;
/// In the place of a rank that is not known.
const NO_RANK: u32 = u32::MAX;
/// In the upper bits of a step's number of sources.
const DETAILS_DROPPED: u16 = 1 << 15;
const SOURCES_DROPPED: u16 = 1 << 14;
const PART: u32 = 4;
const KINDS: u32 = 3;

/// Values of consecutive or scattered steps of one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValuesBlock {
    pub dp_rank: u32,
    /// The rank in the whole job, if known.
    pub rank: Option<u32>,
    /// The coordinate's slices in each step.
    pub first_slice: u32,
    pub slices: u32,
    pub of: DetailOf,
    /// The rank has a part of the coordinate's tokens: those of its ranks are added.
    pub part: bool,
    /// In order, each once.
    pub steps: Vec<StepValues>,
}

impl ValuesBlock {
    fn key(&self) -> (u32, Option<u32>, DetailOf, bool) {
        (self.dp_rank, self.rank, self.of, self.part)
    }
}

/// The content of `J/reports/<first step>-<last step>-<node>.<n>.bwr`.
#[derive(Debug, Clone, PartialEq)]
pub struct ValuesObject {
    pub stream: StreamId,
    /// The id of the attempt.
    pub attempt: AttemptId,
    /// By coordinate, rank, kind of details and part, each once.
    pub blocks: Vec<ValuesBlock>,
}

impl ValuesObject {
    /// Returns the first and the last step in it; 0 if it has none.
    pub fn steps(&self) -> (Step, Step) {
        let firsts = self.blocks.iter().filter_map(|block| block.steps.first());
        let lasts = self.blocks.iter().filter_map(|block| block.steps.last());
        let first = firsts.map(|values| values.step).min();
        let last = lasts.map(|values| values.step).max();
        (first.unwrap_or_default(), last.unwrap_or_default())
    }

    /// Returns the bytes to store.
    pub fn encode(&self) -> Vec<u8> {
        let (first, last) = self.steps();
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.stream.0);
        out.extend_from_slice(&self.attempt.0);
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&last.to_le_bytes());
        for block in &self.blocks {
            block.encode(first, &mut out);
        }
        let crc = crc32c(&out[CRC_FROM..]).to_le_bytes();
        out[CRC_AT..CRC_FROM].copy_from_slice(&crc);
        out
    }

    /// Decodes and checks the object at `key`, of an attempt of this stream.
    pub fn decode(
        bytes: &[u8],
        key: &str,
        stream: StreamId,
        attempt: AttemptId,
    ) -> Result<Self, FormatError> {
        if bytes.len() > VALUES_BYTES_MAX {
            return Err(FormatError::TooLarge {
                key: key.to_owned(),
                bytes: bytes.len(),
                limit: VALUES_BYTES_MAX,
            });
        }
        let rule = |reason: String| FormatError::rule(key, reason);
        let read = Self::parse(bytes).map_err(rule)?;
        FormatError::check_stream(key, read.stream, stream)?;
        let named = keys::parse_values(key).map(|named| (named.first, named.last));
        if named.is_some_and(|steps| steps != read.steps()) {
            let (first, last) = read.steps();
            return Err(rule(format!("has the steps {first} to {last}")));
        }
        if read.attempt != attempt {
            return Err(rule(format!("belongs to attempt {}", read.attempt)));
        }
        Ok(read)
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut fields = Fields(bytes);
        if fields.array()? != MAGIC {
            return Err("is not an object of values: bad magic number".into());
        }
        let crc = fields.u32()?;
        if crc != crc32c(&bytes[CRC_FROM..]) {
            return Err("fails its checksum".into());
        }
        let count = fields.u32()?;
        let stream = StreamId(fields.array()?);
        let attempt = AttemptId(fields.array()?);
        let (first, last) = (fields.u64()?, fields.u64()?);
        let mut blocks: Vec<ValuesBlock> = Vec::new();
        let mut seen = BTreeSet::new();
        for _ in 0..count {
            let block = ValuesBlock::decode(first, &mut fields)?;
            if !seen.insert(block.key()) || seen.last() != Some(&block.key()) {
                return Err("its blocks are not in order, each once".into());
            }
            blocks.push(block);
        }
        let read = Self {
            stream,
            attempt,
            blocks,
        };
        if !fields.0.is_empty() || read.steps() != (first, last) || count == 0 {
            return Err(
                "its first or last step, or its number of blocks, is not that of its content"
                    .into(),
            );
        }
        Ok(read)
    }
}

impl ValuesBlock {
    fn encode(&self, first: Step, out: &mut Vec<u8>) {
        let kind = match self.of {
            DetailOf::None => 0,
            DetailOf::Row => 1,
            DetailOf::Document => 2,
        };
        let flags = kind | if self.part { PART } else { 0 };
        let rank = self.rank.unwrap_or(NO_RANK);
        let steps = self.steps.len() as u32;
        for number in [
            self.dp_rank,
            rank,
            self.first_slice,
            self.slices,
            steps,
            flags,
            0,
            0,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for values in &self.steps {
            values.encode(first, out);
        }
    }

    fn decode(first: Step, fields: &mut Fields<'_>) -> Result<Self, String> {
        let (dp_rank, rank) = (fields.u32()?, fields.u32()?);
        let (first_slice, slices) = (fields.u32()?, fields.u32()?);
        let (count, flags) = (fields.u32()?, fields.u32()?);
        let of = match flags & KINDS {
            0 => DetailOf::None,
            1 => DetailOf::Row,
            2 => DetailOf::Document,
            _ => return Err("has details of an unknown kind".into()),
        };
        if flags & !(KINDS | PART) != 0 || fields.u64()? != 0 {
            return Err("a reserved field of a block is not zero".into());
        }
        if count == 0 || slices == 0 || dp_rank.checked_mul(slices) != Some(first_slice) {
            return Err(format!(
                "coordinate {dp_rank} has {count} steps of {slices} slices from slice {first_slice} on"
            ));
        }
        let mut steps: Vec<StepValues> = Vec::new();
        for _ in 0..count {
            let values = StepValues::decode(first, fields)?;
            if steps.last().is_some_and(|last| last.step >= values.step) {
                return Err(format!(
                    "the steps of coordinate {dp_rank} are not in order"
                ));
            }
            if of == DetailOf::None && !values.details.is_empty() {
                return Err(format!("step {} has details of no kind", values.step));
            }
            steps.push(values);
        }
        Ok(Self {
            dp_rank,
            rank: (rank != NO_RANK).then_some(rank),
            first_slice,
            slices,
            of,
            part: flags & PART != 0,
            steps,
        })
    }
}

impl StepValues {
    fn encode(&self, first: Step, out: &mut Vec<u8>) {
        let mut sources = self.sources.len() as u16;
        if self.details_dropped {
            sources |= DETAILS_DROPPED;
        }
        if self.sources_dropped {
            sources |= SOURCES_DROPPED;
        }
        // A daemon stores them every few minutes: the steps of an object are far fewer than 2^32.
        out.extend_from_slice(&((self.step - first) as u32).to_le_bytes());
        out.extend_from_slice(&sources.to_le_bytes());
        out.extend_from_slice(&(self.details.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.nonfinite.to_le_bytes());
        out.extend_from_slice(&self.weight.to_le_bytes());
        out.extend_from_slice(&self.sum.to_le_bytes());
        for one in &self.sources {
            out.extend_from_slice(&u32::from(one.source).to_le_bytes());
            out.extend_from_slice(&one.sum.to_le_bytes());
            out.extend_from_slice(&one.weight.to_le_bytes());
        }
        for one in &self.details {
            out.extend_from_slice(&one.mean.to_le_bytes());
            out.extend_from_slice(&one.weight.to_le_bytes());
        }
    }

    fn decode(first: Step, fields: &mut Fields<'_>) -> Result<Self, String> {
        let step = first.saturating_add(fields.u32()?.into());
        let (counts, details) = (fields.u16()?, fields.u16()?);
        let (nonfinite, weight) = (fields.u32()?, fields.f32()?);
        let sum = f64::from_le_bytes(fields.array()?);
        let mut values = Self {
            step,
            sum,
            weight,
            nonfinite,
            details_dropped: counts & DETAILS_DROPPED != 0,
            sources_dropped: counts & SOURCES_DROPPED != 0,
            ..Self::default()
        };
        for _ in 0..counts & !(DETAILS_DROPPED | SOURCES_DROPPED) {
            let number = fields.u32()?;
            let source =
                u16::try_from(number).map_err(|_| format!("source {number} of step {step}"))?;
            let (sum, weight) = (fields.f32()?, fields.f32()?);
            values.sources.push(SourceLoss {
                source,
                sum,
                weight,
            });
        }
        for _ in 0..details {
            let (mean, weight) = (fields.f32()?, fields.f32()?);
            values.details.push(DetailLoss { mean, weight });
        }
        values.check()?;
        Ok(values)
    }
}

/// The bytes that are not decoded yet.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.0.split_first_chunk().ok_or("is cut short")?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn f32(&mut self) -> Result<f32, String> {
        self.array().map(f32::from_le_bytes)
    }
}
