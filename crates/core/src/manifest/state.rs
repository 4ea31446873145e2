//! The state of the fold. Its size is bounded by what is alive (producers, open jobs, one open segment,
//! TGBs that wait for their turn), never by history.
//!
//! A copy of a manifest shares all parts with the original, and a fold replaces only the parts that its
//! record touches: both cost the same with one producer and with thousands.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, VectorSync};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::{Entry, HoldingJob};
pub use super::job_state::{AttemptState, JobState, QuarantineState};
use super::lanes::Lanes;
pub use super::lanes::Waiting;
use super::record::Record;
use crate::cursor::Cursor;
use crate::ids::{
    Epoch, Hash, IdError, JobName, Nonce, ProducerName, RequestId, Seq, Step, StreamId, Version,
};
use crate::inputs::{self, LinkId};
use crate::limits::SEGMENT_STEPS;
use crate::stream::{StreamConfig, StreamOrder};
use crate::tgb::{Digest, TgbRecord};

/// A TGB that has a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepEntry {
    pub step: Step,
    pub producer: ProducerName,
    /// The epoch in which it was committed.
    pub epoch: Epoch,
    pub seq: Seq,
    /// The version that committed it.
    pub version: Version,
    /// Parts, counts and digest.
    pub tgb: TgbRecord,
}

impl StepEntry {
    /// Whether a record commits this very TGB: an entry of a forged copy of the log may name another one.
    pub fn is_in(&self, record: &Record) -> bool {
        record.entries.iter().any(|entry| {
            let Entry::Batch(batch) = entry else {
                return false;
            };
            let at = self.seq.checked_sub(batch.first_seq);
            let tgb = at.and_then(|at| batch.tgbs.get(usize::try_from(at).ok()?));
            batch.producer == self.producer && batch.epoch == self.epoch && tgb == Some(&self.tgb)
        })
    }
}

/// The state of one producer. Kept for ever: a name keeps its epoch and sequence.
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
    /// Its position in its input.
    pub cursor: Cursor,
    /// It has finished; `next_seq` is final.
    pub finished: bool,
    /// A person ended its epoch; a new opening is possible.
    pub retired: bool,
    /// Mixtures by the sequence number from which they are in force; only the one in force at `next_seq`
    /// and later ones are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mixtures: BTreeMap<Seq, u64>,
    /// Of a fork, until the first commit: what the producer makes once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Arc<Again>>,
}

impl ProducerState {
    /// Returns the number of the first batch that the producer makes from its cursor: in a fork it may lie before the
    /// next one.
    pub fn made_from(&self) -> Seq {
        let again = self.again.as_ref().map_or(0, |a| a.digests.len() as u64);
        self.next_seq.saturating_sub(again)
    }

    /// Returns the input list that the cursor counts in. Fails when the cursor is of a kind that has none.
    pub fn input_list(&self) -> Result<Option<LinkId>, IdError> {
        match self.again.as_ref().and_then(|again| again.inputs) {
            Some(list) => Ok(Some(list)),
            None => inputs::head_of(&self.cursor),
        }
    }
}

/// The batches of the parent between a producer's cursor and its first batch in the fork: those of the same entry whose
/// steps lie below the fork.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Again {
    /// Their digests, in order: the last one is of the batch before the next.
    pub digests: Vec<Digest>,
    /// The input list that the cursor counts in, as the parent knew it at the fork: longer than the cursor's own, where
    /// files have joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<LinkId>,
}

/// The last mixture that was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureState {
    /// Id of the mixture; 0 before any.
    pub id: u64,
    pub spec: Value,
}

/// The lane that holds back everything behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Awaited<'m> {
    /// The producer whose TGB the next step waits for.
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
    // Changed rarely, by people and by daemons that manage the stream, so copied as a whole.
    pub(super) jobs: Arc<BTreeMap<JobName, JobState>>,
    pub(super) quarantine: Arc<Vec<QuarantineState>>,
    pub(super) mixture: Arc<MixtureState>,
    pub(super) requests: Arc<VecDeque<RequestId>>,
    pub(super) void_entries: u64,
    pub(super) void_records: u64,
    pub(super) genesis: Hash,
    pub(super) view: Hash,
    /// Versions that a repair made void; rare, so copied as a whole.
    pub(super) repaired: Arc<Vec<Version>>,
}

impl Manifest {
    /// Returns the state before version 0. `stream_json` are the bytes as stored: the chain begins there.
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

    /// Returns the stream's parameters.
    pub fn stream(&self) -> &StreamConfig {
        &self.stream
    }

    /// Returns the stream's id.
    pub fn stream_id(&self) -> StreamId {
        self.stream.stream_id
    }

    /// Returns the next version: one more than the last folded.
    pub fn next_version(&self) -> Version {
        self.next_version
    }

    /// Returns the hash that the next record's `prev` must have.
    pub fn prev(&self) -> Hash {
        self.prev
    }

    /// Returns the SHA-256 of stream.json, with which the chain begins.
    pub fn genesis(&self) -> Hash {
        self.genesis
    }

    /// Returns a running hash over every record and its effects in this fold: the next record's `view` must
    /// equal it.
    pub fn view(&self) -> Hash {
        self.view
    }

    /// Returns the versions that a repair made void, in order.
    pub fn repaired(&self) -> &[Version] {
        &self.repaired
    }

    /// Returns the first step without a TGB: the contiguous head.
    pub fn next_step(&self) -> Step {
        self.next_step
    }

    /// Returns the oldest step that may still be read.
    pub fn watermark(&self) -> Step {
        self.watermark
    }

    /// Returns all producers that were ever opened.
    pub fn producers(&self) -> impl Iterator<Item = (&ProducerName, &ProducerState)> {
        self.producers
            .iter()
            .map(|(name, state)| (name, state.as_ref()))
    }

    /// Returns the number of producers that were ever opened.
    pub fn producer_count(&self) -> usize {
        self.producers.size()
    }

    /// Returns the state of a producer, if it was ever opened.
    pub fn producer(&self, name: &ProducerName) -> Option<&ProducerState> {
        self.producers.get(name).map(AsRef::as_ref)
    }

    /// Returns the data coordinates of the newest attempts of all open jobs together.
    pub fn coordinates(&self) -> u32 {
        let newest = self.jobs().values().filter_map(|job| job.attempts.last());
        newest.fold(0, |sum: u32, a| sum.saturating_add(a.dp_size))
    }

    /// Returns the open jobs.
    pub fn jobs(&self) -> &BTreeMap<JobName, JobState> {
        &self.jobs
    }

    /// Returns the quarantines, lifted ones included while a live attempt needs them.
    pub fn quarantines(&self) -> &[QuarantineState] {
        &self.quarantine
    }

    /// Returns the last mixture.
    pub fn mixture(&self) -> &MixtureState {
        &self.mixture
    }

    /// Returns the mixture in force for `producer` at `seq`.
    pub fn mixture_at(&self, producer: &ProducerName, seq: Seq) -> u64 {
        let changes = self.producers.get(producer).map(|p| &p.mixtures);
        changes
            .and_then(|m| m.range(..=seq).next_back())
            .map_or(0, |(_, id)| *id)
    }

    /// Returns whether a seal is in force (a person's, not the last finish).
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// Returns the end of the stream, once nothing can be added: readers end before this step.
    pub fn end(&self) -> Option<Step> {
        (self.sealed || self.lanes.all_finished()).then_some(self.next_step)
    }

    /// Returns the number of void entries.
    pub fn void_entries(&self) -> u64 {
        self.void_entries
    }

    /// Returns the number of records that were void as a whole.
    pub fn void_records(&self) -> u64 {
        self.void_records
    }

    /// Returns the first step that the manifest itself holds; older ones are in index segments.
    pub fn first_open_step(&self) -> Step {
        let segment = self.next_step - self.next_step % SEGMENT_STEPS;
        segment.max(self.stream.first_step())
    }

    /// Returns a step of the open segment.
    pub fn open_step(&self, step: Step) -> Option<&Arc<StepEntry>> {
        let index = step.checked_sub(self.first_open_step())?;
        self.open_steps.get(usize::try_from(index).ok()?)
    }

    /// Returns the steps of the open segment.
    pub fn open_steps(&self) -> impl Iterator<Item = &Arc<StepEntry>> {
        self.open_steps.iter()
    }

    /// Returns the TGBs that are committed and have no step yet.
    pub fn waiting_tgbs(&self) -> impl Iterator<Item = &TgbRecord> {
        let queues = self.lanes.queues();
        queues.flat_map(|(_, queue)| queue.values().map(|waiting| &waiting.tgb))
    }

    /// Returns the number of TGBs that are committed and wait for their lane's turn.
    pub fn waiting(&self) -> usize {
        self.lanes.waiting()
    }

    /// Under `lanes`, returns the producer that the next step waits for.
    pub fn awaited_lane(&self) -> Option<&ProducerName> {
        self.awaited().map(|awaited| awaited.lane)
    }

    /// Under `lanes`, returns the producer that the next step waits for, and since which version.
    pub fn awaited(&self) -> Option<Awaited<'_>> {
        if self.stream.order != StreamOrder::Lanes || self.end().is_some() {
            return None;
        }
        let (turn, since) = self.lanes.turn();
        let lane = self.stream.producers.get(turn as usize)?;
        Some(Awaited { lane, since })
    }

    /// Returns every open job that holds data, as a watermark entry must list them.
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
