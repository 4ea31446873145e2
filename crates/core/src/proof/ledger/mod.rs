//! A ledger object: the steps that a node's ranks received in an attempt, with the CRC32C of every slice.
//!
//! Create-only. Together with the log it proves a run after the data is deleted: the log names a digest
//! over all slices' checksums, and ledgers hold the checksums that each data coordinate received, and the states
//! that ranks reported of their steps. An object ends in a digest of itself, so that every changed digit is detected.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::states::{ReportedStates, STATE_RANGES_MAX};
use crate::error::FormatError;
use crate::ids::{AttemptId, AttemptNo, JobName, Step, StreamId, Version};
use crate::limits::{LEDGER_BYTES_MAX, NUMBER_MAX, SLICES_MAX};
use crate::{json, keys};

/// Steps after which a node stores a ledger. A crash loses at most this many; they are recorded again when
/// the ranks resume.
pub const LEDGER_STEPS: u64 = 256;
/// Checksums in one object: a node with very many slices stores earlier.
pub const LEDGER_CRCS: usize = 1 << 20;
/// Entries that one object may have.
pub const LEDGER_ENTRIES_MAX: usize = 1 << 16;
/// Format of an object with states of steps.
const FORMAT_WITH_STATES: u32 = 2;

const _: () = assert!(8 * (LEDGER_CRCS + SLICES_MAX as usize) < LEDGER_BYTES_MAX / 2);

/// Consecutive steps that one rank received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    pub dp_rank: u32,
    /// The rank in the whole job, if it sent one: several ranks may read one coordinate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The first slice of the coordinate.
    pub first_slice: u32,
    /// The number of its slices in each step.
    pub slices: u32,
    pub from: Step,
    /// The step after the last one.
    pub to: Step,
    /// Whether the rank returned. Some of these steps may be recorded before, and those from a daemon that
    /// crashed are taken from the store's index.
    pub resumed: bool,
    /// CRC32C of each slice's payload, step by step, without the skipped ones.
    #[serde(with = "hex")]
    pub crcs: Vec<u32>,
    /// Quarantined steps that were skipped: the first, and the one after the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<(Step, Step)>,
}

impl LedgerEntry {
    /// Returns the reader: the coordinate, and the rank if known.
    pub fn reader(&self) -> (u32, Option<u32>) {
        (self.dp_rank, self.rank)
    }

    /// Returns the range of the coordinate's slices.
    pub fn slice_range(&self) -> Range<u32> {
        self.first_slice..self.first_slice.saturating_add(self.slices)
    }

    /// Returns the number of received steps.
    pub fn received(&self) -> u64 {
        let skipped: u64 = self.skipped.iter().map(|(first, end)| end - first).sum();
        self.to - self.from - skipped
    }

    /// Returns each received step with its checksums. The steps of a skipped range are not walked, since a
    /// range may be as long as numbers allow.
    pub fn steps(&self) -> impl Iterator<Item = (Step, &[u32])> {
        let begins = std::iter::once(self.from).chain(self.skipped.iter().map(|(_, end)| *end));
        let ends = self.skipped.iter().map(|(first, _)| *first);
        let steps = begins
            .zip(ends.chain([self.to]))
            .flat_map(|(begin, end)| begin..end);
        steps.zip(self.crcs.chunks(self.slices.max(1) as usize))
    }

    fn check(&self) -> Result<(), String> {
        let Self { from, to, .. } = *self;
        if from >= to || to >= NUMBER_MAX {
            return Err(format!("steps {from} to {to} are not a range"));
        }
        let slices = u64::from(self.slices);
        if slices == 0 || self.first_slice > SLICES_MAX || self.slices > SLICES_MAX {
            return Err(format!(
                "slice {} and {} more of at most {SLICES_MAX}",
                self.first_slice, self.slices
            ));
        }
        if u64::from(self.first_slice) != u64::from(self.dp_rank) * slices {
            return Err(format!(
                "coordinate {} can't begin with slice {} when each has {slices}",
                self.dp_rank, self.first_slice
            ));
        }
        let mut at = from;
        for &(first, end) in &self.skipped {
            if first < at || first >= end || end > to {
                return Err(format!(
                    "skipped steps {first} to {end} are not a range in it"
                ));
            }
            at = end;
        }
        let needed = u128::from(self.received()) * u128::from(slices);
        if needed != self.crcs.len() as u128 {
            return Err(format!(
                "{} checksums for {} steps of {slices} slices",
                self.crcs.len(),
                self.received()
            ));
        }
        Ok(())
    }
}

/// The first step that ledgers do not cover, for one reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReaderCoverage {
    pub dp_rank: u32,
    /// The rank in the whole job, as in the entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The step after the last covered one.
    pub to: Step,
}

impl ReaderCoverage {
    /// Returns the reader: the coordinate, and the rank if known.
    pub fn reader(&self) -> (u32, Option<u32>) {
        (self.dp_rank, self.rank)
    }
}

/// The content of a ledger object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// Format of this object, as [`Ledger::format_with`] returns it.
    pub format: u32,
    pub stream: StreamId,
    pub job: JobName,
    pub opened: Version,
    pub attempt: AttemptNo,
    /// The attempt's id, as in the log.
    pub id: AttemptId,
    /// The writing node: one run of a daemon.
    pub node: String,
    pub entries: Vec<LedgerEntry>,
    /// For every reader that the node knows, the first step that this object and all stored before it do
    /// not cover without a hole. So the newest object of each node shows where to continue. Older objects
    /// lack it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<ReaderCoverage>,
    /// The states that ranks reported of their steps, each reader once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<ReportedStates>,
}

/// The place of a ledger: its stream and the content of its key.
#[derive(Debug, Clone, Copy)]
pub struct LedgerPlace<'a> {
    pub stream: StreamId,
    pub job: &'a JobName,
    pub opened: Version,
    pub attempt: AttemptNo,
}

impl Ledger {
    /// Returns the first step, which is part of the key.
    pub fn first(&self) -> Step {
        let entries = self.entries.iter().map(|e| e.from);
        let states = self.states.iter().filter_map(ReportedStates::first);
        entries.chain(states).min().unwrap_or(0)
    }

    /// Returns the format of an object with these states: 2 with any, so that earlier programs ask for an
    /// upgrade, else 1.
    pub fn format_with(states: &[ReportedStates]) -> u32 {
        if states.is_empty() {
            1
        } else {
            FORMAT_WITH_STATES
        }
    }

    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes the ledger at `key` and checks it against its place.
    pub fn from_json(
        bytes: &[u8],
        key: &str,
        place: &LedgerPlace<'_>,
    ) -> Result<Self, FormatError> {
        let read: Self =
            json::parse_up_to(bytes, key, LEDGER_BYTES_MAX, FORMAT_WITH_STATES.into())?;
        read.check(key, place)
            .map_err(|reason| FormatError::rule(key, reason))?;
        Ok(read)
    }

    fn check(&self, key: &str, place: &LedgerPlace<'_>) -> Result<(), String> {
        if self.stream != place.stream {
            return Err(format!("belongs to stream {}", self.stream));
        }
        if (&self.job, self.opened, self.attempt) != (place.job, place.opened, place.attempt) {
            return Err(format!(
                "is of {}@{}, attempt {}",
                self.job, self.opened, self.attempt
            ));
        }
        if self.format != Self::format_with(&self.states) {
            return Err("format must be 2 with states, else 1".into());
        }
        let count = self.entries.len();
        if count > LEDGER_ENTRIES_MAX || (count == 0 && self.states.is_empty()) {
            return Err(format!(
                "must have 1 to {LEDGER_ENTRIES_MAX} entries, not {count}"
            ));
        }
        self.check_states()?;
        for (n, entry) in self.entries.iter().enumerate() {
            entry.check().map_err(|why| format!("entry {n}: {why}"))?;
        }
        self.check_told()?;
        let folder = keys::attempt_folder(&self.job, self.opened, self.attempt);
        let named = format!("{folder}ledger/{:012}-{}.", self.first(), self.node);
        if !key.starts_with(&named) {
            return Err(format!(
                "holds steps from {} on of node {:?}, which its key does not say",
                self.first(),
                self.node
            ));
        }
        Ok(())
    }

    /// Checks the states of each reader, and that each has them once.
    fn check_states(&self) -> Result<(), String> {
        let ranges: usize = self.states.iter().map(ReportedStates::ranges).sum();
        if ranges > STATE_RANGES_MAX {
            return Err(format!("states have more than {STATE_RANGES_MAX} ranges"));
        }
        let apart = |pair: &[ReportedStates]| pair[0].reader() < pair[1].reader();
        if !self.states.windows(2).all(apart) {
            return Err("states must have each reader once, in order".into());
        }
        for states in &self.states {
            let rank = states.dp_rank;
            let checked = states.check();
            checked.map_err(|why| format!("states of coordinate {rank}: {why}"))?;
        }
        Ok(())
    }

    /// Checks that the readers are in order and include those of the entries. Steps after a hole are not
    /// covered yet.
    fn check_told(&self) -> Result<(), String> {
        if self.told.is_empty() {
            return Ok(());
        }
        if self.told.len() > LEDGER_ENTRIES_MAX {
            return Err(format!("told of more than {LEDGER_ENTRIES_MAX} readers"));
        }
        let apart = |pair: &[ReaderCoverage]| pair[0].reader() < pair[1].reader();
        if !self.told.windows(2).all(apart) || self.told.iter().any(|told| told.to >= NUMBER_MAX) {
            return Err("told must have each reader once, in order".into());
        }
        for entry in &self.entries {
            let found = self
                .told
                .binary_search_by_key(&entry.reader(), ReaderCoverage::reader);
            if found.is_err() {
                return Err(format!("told says nothing of coordinate {}", entry.dp_rank));
            }
        }
        Ok(())
    }
}

/// Checksums of 8 hexadecimal digits each, without separators.
mod hex {
    use std::fmt::Write;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(crcs: &[u32], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(8 * crcs.len());
        for crc in crcs {
            let _ = write!(text, "{crc:08x}");
        }
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || D::Error::custom("checksums must be 8 lower-case hexadecimal digits each");
        if !text.len().is_multiple_of(8) {
            return Err(wrong());
        }
        let lower = |c: &u8| c.is_ascii_digit() || (b'a'..=b'f').contains(c);
        let crc = |digits: &[u8]| {
            let good = digits.iter().all(lower);
            let digits = std::str::from_utf8(digits).ok().filter(|_| good)?;
            u32::from_str_radix(digits, 16).ok()
        };
        let all: Option<Vec<u32>> = text.as_bytes().chunks(8).map(crc).collect();
        all.ok_or_else(wrong)
    }
}

#[cfg(test)]
pub(super) mod tests;
