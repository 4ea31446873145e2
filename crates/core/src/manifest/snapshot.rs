//! A stored manifest. Deterministic: whoever folds the log to a version writes the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::invariants;
use super::state::{
    JobState, Manifest, MixtureState, ProducerState, QuarantineState, StepEntry, Waiting,
};
use crate::error::FormatError;
use crate::ids::{Hash, JobName, ProducerName, RequestId, Seq, Step, StreamId, Version};
use crate::stream::StreamConfig;
use crate::{json, keys};

/// Snapshots are read whole; this bounds a hostile one.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    stream: StreamId,
    version: Version,
    record: Hash,
    next_step: Step,
    watermark: Step,
    sealed: bool,
    turn: u32,
    producers: BTreeMap<ProducerName, Arc<ProducerState>>,
    jobs: BTreeMap<JobName, JobState>,
    quarantine: Vec<QuarantineState>,
    mixture: MixtureState,
    waiting: BTreeMap<ProducerName, BTreeMap<Seq, Arc<Waiting>>>,
    open_steps: Vec<Arc<StepEntry>>,
    requests: VecDeque<RequestId>,
    void_entries: u64,
    void_records: u64,
}

impl Manifest {
    /// The bytes of the snapshot at the last folded version; `None` before any record.
    pub fn snapshot(&self) -> Option<(Version, Vec<u8>)> {
        let version = self.next_version.checked_sub(1)?;
        let stored = Stored {
            format: 1,
            stream: self.stream.stream_id,
            version,
            record: self.prev,
            next_step: self.next_step,
            watermark: self.watermark,
            sealed: self.sealed,
            turn: self.turn,
            producers: self.producers.clone(),
            jobs: self.jobs.clone(),
            quarantine: self.quarantine.clone(),
            mixture: self.mixture.clone(),
            waiting: self.waiting.clone(),
            open_steps: self.open_steps.clone(),
            requests: self.requests.clone(),
            void_entries: self.void_entries,
            void_records: self.void_records,
        };
        Some((version, json::compact(&stored)))
    }

    /// The manifest from the bytes of `snapshots/<version>.json`.
    pub fn from_snapshot(
        stream: Arc<StreamConfig>,
        bytes: &[u8],
        version: Version,
    ) -> Result<Self, FormatError> {
        let key = keys::snapshot(version);
        let stored: Stored = json::parse(bytes, &key, SNAPSHOT_BYTES_MAX)?;
        if stored.stream != stream.stream_id {
            return Err(FormatError::rule(
                &key,
                format!("belongs to stream {}", stored.stream),
            ));
        }
        if stored.version != version {
            return Err(FormatError::rule(
                &key,
                format!("says version {}", stored.version),
            ));
        }
        let next_version = version
            .checked_add(1)
            .ok_or_else(|| FormatError::rule(&key, "is at the last possible version"))?;
        let manifest = Self {
            stream,
            next_version,
            prev: stored.record,
            producers: stored.producers,
            next_step: stored.next_step,
            turn: stored.turn,
            waiting: stored.waiting,
            open_steps: stored.open_steps,
            watermark: stored.watermark,
            sealed: stored.sealed,
            jobs: stored.jobs,
            quarantine: stored.quarantine,
            mixture: stored.mixture,
            requests: stored.requests,
            void_entries: stored.void_entries,
            void_records: stored.void_records,
        };
        invariants::check(&manifest).map_err(|broken| FormatError::rule(&key, broken))?;
        Ok(manifest)
    }
}
