//! A stored manifest. It is deterministic: every fold of the log to a version gives the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::invariants;
use super::lanes::Lanes;
use super::record::{self, FORMAT_WITH_STAGES};
use super::stages::Stages;
use super::state::{
    JobState, Manifest, MixtureState, ProducerState, QuarantineState, StepEntry, Waiting,
};
use crate::error::FormatError;
use crate::guards;
use crate::ids::{Hash, JobName, ProducerName, RequestId, Seq, Step, StreamId, Version};
use crate::limits::SNAPSHOT_BYTES_MAX;
use crate::stream::StreamConfig;
use crate::{json, keys};

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
    #[serde(default, skip_serializing_if = "is_zero")]
    turn_since: Version,
    producers: BTreeMap<ProducerName, Arc<ProducerState>>,
    jobs: BTreeMap<JobName, JobState>,
    quarantine: Vec<QuarantineState>,
    mixture: MixtureState,
    #[serde(default, skip_serializing_if = "Stages::is_empty")]
    stages: Stages,
    waiting: BTreeMap<ProducerName, BTreeMap<Seq, Arc<Waiting>>>,
    open_steps: Vec<Arc<StepEntry>>,
    requests: VecDeque<RequestId>,
    void_entries: u64,
    void_records: u64,
    genesis: Hash,
    view: Hash,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    repaired: Vec<Version>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants a reference
fn is_zero(version: &Version) -> bool {
    *version == 0
}

impl Manifest {
    /// Returns the bytes of the snapshot at the last folded version; `None` before any record.
    pub fn snapshot(&self) -> Option<(Version, Vec<u8>)> {
        let version = self.next_version.checked_sub(1)?;
        let (turn, turn_since) = self.lanes.turn();
        let queues = self.lanes.queues();
        let waiting = queues.map(|(name, queue)| (name.clone(), pairs(queue.iter())));
        let stored = Stored {
            format: self.snapshot_format(),
            stream: self.stream.stream_id,
            version,
            record: self.prev,
            next_step: self.next_step,
            watermark: self.watermark,
            sealed: self.sealed && !guards::forgets_seal(),
            turn,
            turn_since,
            producers: pairs(self.producers.iter()),
            jobs: BTreeMap::clone(&self.jobs),
            quarantine: Vec::clone(&self.quarantine),
            mixture: MixtureState::clone(&self.mixture),
            stages: Stages::clone(&self.stages),
            waiting: waiting.collect(),
            open_steps: self.open_steps.iter().cloned().collect(),
            requests: VecDeque::clone(&self.requests),
            void_entries: self.void_entries,
            void_records: self.void_records,
            genesis: self.genesis,
            view: self.view,
            repaired: Vec::clone(&self.repaired),
        };
        Some((version, json::compact(&stored)))
    }

    /// Decodes the manifest from the bytes of `snapshots/<version>.json`.
    pub fn from_snapshot(
        stream: Arc<StreamConfig>,
        bytes: &[u8],
        version: Version,
    ) -> Result<Self, FormatError> {
        let key = keys::snapshot(version);
        let stored: Stored =
            json::parse_up_to(bytes, &key, SNAPSHOT_BYTES_MAX, FORMAT_WITH_STAGES.into())?;
        FormatError::check_stream(&key, stored.stream, stream.stream_id)?;
        if stored.version != version {
            return Err(FormatError::rule(
                &key,
                format!("says version {}", stored.version),
            ));
        }
        let format = stored.format;
        let next_version = version
            .checked_add(1)
            .ok_or_else(|| FormatError::rule(&key, "is at the last possible version"))?;
        let finished = stored.producers.iter().filter(|(_, p)| p.finished);
        let lanes = Lanes::stored(
            &stream,
            stored.turn,
            stored.turn_since,
            stored.waiting,
            finished.map(|(name, _)| name),
        );
        let manifest = Self {
            stream,
            next_version,
            prev: stored.record,
            lanes,
            producers: stored.producers.into_iter().collect(),
            next_step: stored.next_step,
            open_steps: stored.open_steps.into_iter().collect(),
            watermark: stored.watermark,
            sealed: stored.sealed,
            jobs: Arc::new(stored.jobs),
            quarantine: Arc::new(stored.quarantine),
            mixture: Arc::new(stored.mixture),
            stages: Arc::new(stored.stages),
            requests: Arc::new(stored.requests),
            void_entries: stored.void_entries,
            void_records: stored.void_records,
            genesis: stored.genesis,
            view: stored.view,
            repaired: Arc::new(stored.repaired),
        };
        invariants::check(&manifest).map_err(|broken| FormatError::rule(&key, broken))?;
        FormatError::check_format(&key, format, manifest.snapshot_format())?;
        Ok(manifest)
    }

    fn snapshot_format(&self) -> u32 {
        record::format_of(!self.stages.is_empty())
    }
}

fn pairs<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    map: impl Iterator<Item = (&'a K, &'a V)>,
) -> BTreeMap<K, V> {
    map.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
