//! What the fold keeps. Its size is bounded by what is alive (producers, open jobs, one open
//! segment, TGBs that wait for their turn), never by history.
//!
//! A copy of a manifest shares all parts with the original, and a fold replaces only what its
//! record touches: both cost the same with one producer and with thousands.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, VectorSync};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::HoldingJob;
pub use super::job_state::{AttemptState, JobState, QuarantineState};
use super::lanes::Lanes;
use crate::cursor::Cursor;
use crate::ids::{
    Epoch, Hash, JobName, Nonce, ProducerName, RequestId, Seq, Step, StreamId, Version,
};
use crate::limits::SEGMENT_STEPS;
use crate::stream::{StreamConfig, StreamOrder};
use crate::tgb::TgbRecord;

/// A TGB that has its step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepEntry {
    pub step: Step,
    pub producer: ProducerName,
    /// In which epoch it was committed.
    pub epoch: Epoch,
    pub seq: Seq,
    /// The version that committed it.
    pub version: Version,
    /// Parts, counts and digest.
    pub tgb: TgbRecord,
}

/// A committed TGB that waits for its lane's turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// In which epoch it was committed.
    pub epoch: Epoch,
    /// The version that committed it.
    pub version: Version,
    /// Parts, counts and digest.
    pub tgb: TgbRecord,
}

/// What is known of one producer. Kept for ever: names keep their epoch and sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerState {
    pub epoch: Epoch,
    /// The nonce of its opening.
    pub nonce: Nonce,
    /// Host and process that opened it.
    pub instance: String,
    /// The version that opened it.
    pub opened: Version,
    /// The head of the log when that instance began.
    pub began: Version,
    /// The next sequence number.
    pub next_seq: Seq,
    /// Where it stands in its input.
    pub cursor: Cursor,
    /// It has no more; `next_seq` is final.
    pub finished: bool,
    /// A person ended its epoch; a new opening is possible.
    pub retired: bool,
    /// Mixtures by the sequence number from which they are in force; only the one in force at
    /// `next_seq` and later ones are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mixtures: BTreeMap<Seq, u64>,
}

/// The last mixture that was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureState {
    /// Its id; 0 before any.
    pub id: u64,
    pub spec: Value,
}

/// The lane that holds back everything behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Awaited<'m> {
    /// Whose TGB the next step waits for.
    pub lane: &'m ProducerName,
    /// The version whose record gave it the turn; 0 also for the lane that begins.
    pub since: Version,
}

/// The folded state after some version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub(super) stream: Arc<StreamConfig>,
    pub(super) next_version: Version,
    pub(super) prev: Hash,
    pub(super) producers: RedBlackTreeMapSync<ProducerName, Arc<ProducerState>>,
    pub(super) next_step: Step,
    pub(super) lanes: Lanes,
    pub(super) open_steps: VectorSync<Arc<StepEntry>>,
    pub(super) watermark: Step,
    pub(super) sealed: bool,
    // Changed by people and by daemons that manage the stream: rarely, so whole.
    pub(super) jobs: Arc<BTreeMap<JobName, JobState>>,
    pub(super) quarantine: Arc<Vec<QuarantineState>>,
    pub(super) mixture: Arc<MixtureState>,
    pub(super) requests: Arc<VecDeque<RequestId>>,
    pub(super) void_entries: u64,
    pub(super) void_records: u64,
    pub(super) genesis: Hash,
    pub(super) view: Hash,
    /// Versions that a repair made void. Rare, so whole.
    pub(super) repaired: Arc<Vec<Version>>,
}

impl Manifest {
    /// The state before version 0. `stream_json` are the bytes as stored: the chain begins there.
    pub fn new(stream: StreamConfig, stream_json: &[u8]) -> Self {
        Self {
            lanes: Lanes::new(&stream),
            stream: Arc::new(stream),
            next_version: 0,
            prev: Hash::sha256(stream_json),
            producers: RedBlackTreeMapSync::new_sync(),
            next_step: 0,
            open_steps: VectorSync::new_sync(),
            watermark: 0,
            sealed: false,
            jobs: Arc::default(),
            quarantine: Arc::default(),
            mixture: Arc::default(),
            requests: Arc::default(),
            void_entries: 0,
            void_records: 0,
            genesis: Hash::sha256(stream_json),
            view: Hash::sha256(stream_json),
            repaired: Arc::default(),
        }
    }

    /// The stream's parameters.
    pub fn stream(&self) -> &StreamConfig {
        &self.stream
    }

    /// The stream's id.
    pub fn stream_id(&self) -> StreamId {
        self.stream.stream_id
    }

    /// The version that comes next: one more than the last folded.
    pub fn next_version(&self) -> Version {
        self.next_version
    }

    /// What the next record's `prev` must be.
    pub fn prev(&self) -> Hash {
        self.prev
    }

    /// SHA-256 of stream.json, with which the chain begins.
    pub fn genesis(&self) -> Hash {
        self.genesis
    }

    /// A running hash over every record and what this fold made of it: what the next record's `view`
    /// must be.
    pub fn view(&self) -> Hash {
        self.view
    }

    /// The versions that a repair made void, in order.
    pub fn repaired(&self) -> &[Version] {
        &self.repaired
    }

    /// The first step that nobody has yet: the contiguous head.
    pub fn next_step(&self) -> Step {
        self.next_step
    }

    /// The oldest step that may still be read.
    pub fn watermark(&self) -> Step {
        self.watermark
    }

    /// All producers that were ever opened.
    pub fn producers(&self) -> impl Iterator<Item = (&ProducerName, &ProducerState)> {
        self.producers
            .iter()
            .map(|(name, state)| (name, state.as_ref()))
    }

    /// How many producers were ever opened.
    pub fn producer_count(&self) -> usize {
        self.producers.size()
    }

    /// One producer.
    pub fn producer(&self, name: &ProducerName) -> Option<&ProducerState> {
        self.producers.get(name).map(AsRef::as_ref)
    }

    /// Open jobs.
    pub fn jobs(&self) -> &BTreeMap<JobName, JobState> {
        &self.jobs
    }

    /// Quarantines, lifted ones included while a live attempt needs them.
    pub fn quarantines(&self) -> &[QuarantineState] {
        &self.quarantine
    }

    /// The last mixture.
    pub fn mixture(&self) -> &MixtureState {
        &self.mixture
    }

    /// The mixture in force for `producer` at `seq`.
    pub fn mixture_at(&self, producer: &ProducerName, seq: Seq) -> u64 {
        let changes = self.producers.get(producer).map(|p| &p.mixtures);
        changes
            .and_then(|m| m.range(..=seq).next_back())
            .map_or(0, |(_, id)| *id)
    }

    /// Whether a seal is in force (a person's, not the last finish).
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// The step that ends the stream, once nothing can be added: readers end before it.
    pub fn end(&self) -> Option<Step> {
        (self.sealed || self.lanes.all_finished()).then_some(self.next_step)
    }

    /// Entries that were void so far.
    pub fn void_entries(&self) -> u64 {
        self.void_entries
    }

    /// Records that were void as a whole so far.
    pub fn void_records(&self) -> u64 {
        self.void_records
    }

    /// The first step that the manifest itself still holds; older ones are in index segments.
    pub fn first_open_step(&self) -> Step {
        self.next_step - self.next_step % SEGMENT_STEPS
    }

    /// A step of the open segment.
    pub fn open_step(&self, step: Step) -> Option<&Arc<StepEntry>> {
        let index = step.checked_sub(self.first_open_step())?;
        self.open_steps.get(usize::try_from(index).ok()?)
    }

    /// The steps of the open segment.
    pub fn open_steps(&self) -> impl Iterator<Item = &Arc<StepEntry>> {
        self.open_steps.iter()
    }

    /// The TGBs that are committed and have no step yet.
    pub fn waiting_tgbs(&self) -> impl Iterator<Item = &TgbRecord> {
        let queues = self.lanes.queues();
        queues.flat_map(|(_, queue)| queue.values().map(|waiting| &waiting.tgb))
    }

    /// How many TGBs are committed and wait for their lane's turn.
    pub fn waiting(&self) -> usize {
        self.lanes.waiting()
    }

    /// Under `lanes`: the producer that the next step waits for.
    pub fn awaited_lane(&self) -> Option<&ProducerName> {
        self.awaited().map(|awaited| awaited.lane)
    }

    /// Under `lanes`: the producer that the next step waits for, and since which version.
    pub fn awaited(&self) -> Option<Awaited<'_>> {
        if self.stream.order != StreamOrder::Lanes || self.end().is_some() {
            return None;
        }
        let (turn, since) = self.lanes.turn();
        let lane = self.stream.producers.get(turn as usize)?;
        Some(Awaited { lane, since })
    }

    /// Every open job that holds, as a watermark entry must list them.
    pub fn holding_jobs(&self) -> Vec<HoldingJob> {
        self.jobs
            .iter()
            .filter(|(_, job)| job.holds)
            .map(|(name, job)| HoldingJob {
                job: name.clone(),
                opened: job.opened,
                attempt: job.attempts.last().map(|a| a.number),
            })
            .collect()
    }
}
