//! An index segment: 1,024 consecutive steps. It is immutable, and every writer makes the same bytes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::StepEntry;
use crate::error::FormatError;
use crate::ids::{Hash, Step, StreamId, Version};
use crate::limits::{SEGMENT_BYTES_MAX, SEGMENT_STEPS};
use crate::{json, keys};

/// The record that filled a segment: by one more read, a reader of the segment verifies that it belongs to
/// this log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filled {
    pub version: Version,
    /// SHA-256 of its bytes.
    pub record: Hash,
}

/// The content of `index/<segment>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Format of this object; 1.
    pub format: u32,
    /// The stream that it belongs to.
    pub stream: StreamId,
    pub segment: u64,
    /// The record that placed its last step; segments of older builds lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<Filled>,
    /// All its steps in order; the first segment of a fork has those from the fork on.
    pub steps: Vec<Arc<StepEntry>>,
}

impl Segment {
    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes and checks a segment of a stream that begins with step 0.
    pub fn from_json(bytes: &[u8], stream: StreamId, segment: u64) -> Result<Self, FormatError> {
        Self::from_json_from(bytes, stream, segment, 0)
    }

    /// Decodes and checks a segment of a stream that begins with step `least`.
    pub fn from_json_from(
        bytes: &[u8],
        stream: StreamId,
        segment: u64,
        least: Step,
    ) -> Result<Self, FormatError> {
        let key = keys::segment(segment);
        let read: Self = json::parse(bytes, &key, SEGMENT_BYTES_MAX)?;
        FormatError::check_stream(&key, read.stream, stream)?;
        let end = (segment + 1) * SEGMENT_STEPS;
        let first = least.max(segment * SEGMENT_STEPS);
        let dense = read.steps.iter().map(|s| s.step).eq(first..end);
        if read.segment != segment || !dense || first >= end {
            return Err(FormatError::rule(
                &key,
                format!("must hold the steps {first} to {} in order", end - 1),
            ));
        }
        Ok(read)
    }

    /// Returns the entry of `step`, if the segment holds it.
    pub fn step(&self, step: Step) -> Option<&Arc<StepEntry>> {
        let first = self.steps.first()?.step;
        self.steps
            .get(usize::try_from(step.checked_sub(first)?).ok()?)
    }
}
