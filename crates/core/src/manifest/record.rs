//! A log record: the bytes of `log/<version>.json`, linked to the record before by its hash.

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::error::FormatError;
use crate::ids::{CommitId, Epoch, Hash, StreamId, Version};
use crate::limits::RECORD_BYTES_MAX;
use crate::{json, keys};

/// The format of records with the reason of a mixture, and of records, intents and snapshots with a stage, so that releases
/// that do not know these stop with the advice to upgrade. Others have format 1.
pub(crate) const FORMAT_WITH_STAGES: u32 = 2;

/// Returns the number of the format of an object with or without what came with format 2.
pub(crate) fn format_of(is_of_format_2: bool) -> u32 {
    if is_of_format_2 {
        FORMAT_WITH_STAGES
    } else {
        1
    }
}

/// The writer of a record. For people: it has no influence on the validity of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// A producer's name, or that of a tool.
    pub name: String,
    /// The producer's epoch; 0 for tools and for the record that opens it.
    pub epoch: Epoch,
}

/// A snapshot that the writer has read or written, so that a wrong one is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotHint {
    pub version: Version,
    /// SHA-256 of its bytes.
    pub hash: Hash,
}

/// Hints of a writer for others; never trusted for correctness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hints {
    /// The writer continues to combine entries: announce instead of racing (DAC).
    pub leads: bool,
    /// The writer's put latency in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put_ms: Option<u32>,
    /// The newest snapshot that the writer knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotHint>,
}

/// A record: one commit to the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Format of this object: [`Record::format_of`] its entries.
    pub format: u32,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// Its version, which is also in its key.
    pub version: Version,
    /// SHA-256 of the record before (of stream.json for version 0).
    pub prev: Hash,
    /// The writer's view of all records before this one: see `Manifest::view`.
    pub view: Hash,
    /// Drawn at random for each record; differs between any two writers.
    pub commit: CommitId,
    pub writer: Writer,
    #[serde(default)]
    pub hints: Hints,
    /// The changes, in order.
    pub entries: Vec<Entry>,
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.epoch {
            0 => f.write_str(&self.name),
            epoch => write!(f, "{} in term {epoch}", self.name),
        }
    }
}

impl Record {
    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes the record of version `version`. The fold checks whether it continues the log.
    pub fn from_json(bytes: &[u8], version: Version) -> Result<Self, FormatError> {
        let key = keys::log(version);
        let record: Self =
            json::parse_up_to(bytes, &key, RECORD_BYTES_MAX, FORMAT_WITH_STAGES.into())?;
        FormatError::check_format(&key, record.format, Self::format_of(&record.entries))?;
        Ok(record)
    }

    /// Returns the number of the format of a record with these entries.
    pub fn format_of(entries: &[Entry]) -> u32 {
        format_of(entries.iter().any(Entry::is_of_format_2))
    }
}
