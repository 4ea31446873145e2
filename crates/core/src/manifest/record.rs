//! A log record: the bytes of `log/<version>.json`, linked to the record before by its hash.

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::error::FormatError;
use crate::ids::{CommitId, Epoch, Hash, StreamId, Version};
use crate::limits::RECORD_BYTES_MAX;
use crate::{json, keys};

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
    /// Format of this object; 1.
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
        json::parse(bytes, &keys::log(version), RECORD_BYTES_MAX)
    }
}
