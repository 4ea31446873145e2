//! A repair: a person's decision that one unreadable record is void.

use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::{Hash, StreamId, Version};
use crate::limits::REPAIR_BYTES_MAX;
use crate::{json, keys};

/// The content of `repairs/<version>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repair {
    /// Format of this object; 1.
    pub format: u32,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// The version that is void.
    pub version: Version,
    /// SHA-256 of the unreadable bytes.
    pub bad: Hash,
    pub reason: String,
}

impl Repair {
    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::pretty(self)
    }

    /// Decodes and checks a repair.
    pub fn from_json(
        bytes: &[u8],
        stream: StreamId,
        version: Version,
    ) -> Result<Self, FormatError> {
        let key = keys::repair(version);
        let read: Self = json::parse(bytes, &key, REPAIR_BYTES_MAX)?;
        if read.stream != stream || read.version != version {
            return Err(FormatError::rule(
                &key,
                "belongs to another stream or version",
            ));
        }
        Ok(read)
    }
}
