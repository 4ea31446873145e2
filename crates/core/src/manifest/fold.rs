//! The fold: the state after a record. It is total for every readable record; an unreadable one stops every
//! reader and writer, since a process that skipped it might disagree with one that can read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{AttemptOpened, BatchEntry, Entry, JobOpened};
use super::fold_error::FoldError;
use super::folded::Folded;
use super::record::Record;
use super::rules::{self, Validity};
use super::segment::{Filled, Segment};
use super::stages::Changes;
use super::state::{
    AttemptState, JobState, Manifest, MixtureState, ProducerState, QuarantineState, StepEntry,
    Waiting,
};
use super::void::{RecordVoid, Void};
use super::{invariants, order, view};
use crate::error::FormatError;
use crate::guards;
use crate::ids::{Hash, ProducerName, RequestId, Version};
use crate::keys;
use crate::limits::{ENTRY_BYTES_MAX, NUMBER_MAX, REQUESTS_KEPT, SEGMENT_STEPS};

impl Manifest {
    /// Folds the record of the next version. On an error the state is unchanged.
    pub fn fold(&mut self, bytes: &[u8]) -> Result<Folded, FoldError> {
        let version = self.next_version;
        if version >= NUMBER_MAX {
            return Err(FoldError::VersionsUsedUp(version));
        }
        let record = self.read(bytes)?;
        let mut next = self.clone();
        let folded = next.fold_record(record, bytes);
        let mut checked = invariants::check_touched(&next, &folded, self.next_step);
        if cfg!(test) {
            checked = checked.and_then(|()| invariants::check(&next));
        }
        checked.map_err(|broken| FoldError::Invariant { version, broken })?;
        *self = next;
        Ok(folded)
    }

    /// Decodes the record of the next version and checks that it continues this state.
    fn read(&self, bytes: &[u8]) -> Result<Record, FoldError> {
        let (version, key) = (self.next_version, keys::log(self.next_version));
        let unreadable = |reason| FoldError::Unreadable {
            version,
            key: key.clone(),
            reason,
        };
        let record = Record::from_json(bytes, version).map_err(unreadable)?;
        if record.stream != self.stream.stream_id {
            // A writer of a former root may have put it: the record is void, whatever its content.
            return Ok(record);
        }
        if record.version != version {
            let says = format!("says version {}: it belongs to another key", record.version);
            return Err(unreadable(FormatError::rule(&key, says)));
        }
        let writer = record.writer.to_string();
        if record.prev != self.prev {
            return Err(FoldError::Unlinked {
                version,
                named: record.prev,
                held: self.prev,
                writer,
            });
        }
        if record.view != self.view {
            return Err(FoldError::OtherView {
                version,
                writer,
                theirs: record.view,
                ours: self.view,
            });
        }
        Ok(record)
    }

    /// Folds a record that this fold rejects and that a repair made void: the chain continues from the hash
    /// of its bytes.
    pub fn fold_repaired(&mut self, bytes: &[u8]) -> Folded {
        let hash = Hash::sha256(bytes);
        let folded = Folded {
            void: Some(RecordVoid::Repaired),
            ..Folded::default()
        };
        Arc::make_mut(&mut self.repaired).push(self.next_version);
        self.void_records += 1;
        self.link(hash, &folded);
        folded
    }

    /// Moves version, chain and view past the record with this hash, after its entries are applied.
    fn link(&mut self, hash: Hash, folded: &Folded) {
        self.view = view::after(self, hash, folded);
        self.prev = hash;
        self.next_version += 1;
    }

    fn fold_record(&mut self, record: Record, bytes: &[u8]) -> Folded {
        let version = self.next_version;
        let hash = Hash::sha256(bytes);
        let foreign = record.stream != self.stream.stream_id;
        let mut folded = Folded {
            void: foreign.then_some(RecordVoid::OtherStream(record.stream)),
            ..Folded::default()
        };
        if folded.void.is_some() {
            self.void_records += 1;
        } else {
            for entry in &record.entries {
                let verdict = self.validate_sized(entry, bytes.len());
                match &verdict {
                    Ok(Validity::Applies) => folded.placed.extend(self.apply(entry, version)),
                    Ok(Validity::Repeat) => {}
                    Err(_) => self.void_entries += 1,
                }
                folded.entries.push(verdict);
            }
            let filled = Filled {
                version,
                record: hash,
            };
            folded.segments = self.keep_open(&folded.placed, filled);
        }
        self.link(hash, &folded);
        folded.record = Some(Arc::new(record));
        folded
    }

    fn validate_sized(&self, entry: &Entry, record_bytes: usize) -> Result<Validity, Void> {
        if record_bytes > ENTRY_BYTES_MAX {
            rules::size(entry)?;
        }
        self.validate(entry)
    }

    /// Adds placed steps to the open segment and removes full segments from it.
    fn keep_open(&mut self, placed: &[Arc<StepEntry>], filled: Filled) -> Vec<Segment> {
        let mut full = Vec::new();
        for entry in placed {
            self.open_steps.push_back_mut(Arc::clone(entry));
            // The first segment of a fork begins where the fork does.
            if (entry.step + 1).is_multiple_of(SEGMENT_STEPS) {
                let steps = std::mem::take(&mut self.open_steps);
                full.push(Segment {
                    format: 1,
                    stream: self.stream.stream_id,
                    segment: entry.step / SEGMENT_STEPS,
                    filled: Some(filled),
                    steps: steps.iter().cloned().collect(),
                });
            }
        }
        full
    }

    /// Applies a valid entry; returns the TGBs that got a step by it.
    pub(super) fn apply(&mut self, entry: &Entry, version: Version) -> Vec<Arc<StepEntry>> {
        if let Some(id) = entry.request() {
            self.remember(id);
        }
        match entry {
            Entry::Opened(e) => {
                let before = self.producers.get(&e.producer).cloned();
                let begun = self.changes_at_opening(&e.producer, before.as_deref());
                let state = ProducerState {
                    epoch: e.epoch,
                    nonce: e.nonce,
                    instance: e.instance.clone(),
                    opened: version,
                    began: e.began,
                    next_seq: before.as_ref().map_or(0, |p| p.next_seq),
                    cursor: before
                        .as_ref()
                        .map(|p| p.cursor.clone())
                        .unwrap_or_default(),
                    finished: false,
                    retired: false,
                    mixtures: begun.mixtures,
                    stages: begun.stages,
                    again: before
                        .filter(|_| !guards::forgets_again())
                        .and_then(|p| p.again.clone()),
                };
                if !self.stages.unopened.is_empty() {
                    Arc::make_mut(&mut self.stages).unopened.remove(&e.producer);
                }
                self.producers
                    .insert_mut(e.producer.clone(), Arc::new(state));
            }
            Entry::Batch(e) => return self.apply_batch(e, version),
            Entry::Finished(e) => {
                self.change(&e.producer, |p| p.finished = true);
                self.lanes.finish(&e.producer);
                return order::advance(self, version);
            }
            Entry::Retired(e) => self.change(&e.producer, |p| p.retired = true),
            Entry::Sealed(_) => self.sealed = true,
            Entry::Unsealed(_) => {
                self.sealed = false;
                return order::advance(self, version);
            }
            administrative => self.apply_admin(administrative, version),
        }
        Vec::new()
    }

    /// Returns the changes with which a producer is opened: its own, or those of one that was never opened.
    fn changes_at_opening(&self, name: &ProducerName, before: Option<&ProducerState>) -> Changes {
        let Some(before) = before else {
            return self.stages.of_unopened(name);
        };
        let (mixtures, stages) = (before.mixtures.clone(), before.stages.clone());
        Changes {
            mixtures: if guards::forgets_mixtures() {
                BTreeMap::new()
            } else {
                mixtures
            },
            stages: if guards::forgets_stages() {
                BTreeMap::new()
            } else {
                stages
            },
        }
    }

    fn apply_batch(&mut self, e: &BatchEntry, version: Version) -> Vec<Arc<StepEntry>> {
        self.change(&e.producer, |p| {
            p.next_seq = e.last_seq + 1;
            p.cursor = e.cursor.clone();
            p.again = None;
            if let Some((&in_force, _)) = p.mixtures.range(..=p.next_seq).next_back() {
                p.mixtures = p.mixtures.split_off(&in_force);
            }
        });
        let mut placed = Vec::with_capacity(e.tgbs.len());
        for (seq, tgb) in (e.first_seq..).zip(&e.tgbs) {
            let waiting = Waiting {
                epoch: e.epoch,
                version,
                tgb: tgb.clone(),
            };
            placed.extend(order::admit(self, &e.producer, seq, waiting));
        }
        placed
    }

    fn apply_admin(&mut self, entry: &Entry, version: Version) {
        match entry {
            Entry::JobOpened(e) => self.open_job(e, version),
            Entry::JobClosed(e) => {
                Arc::make_mut(&mut self.jobs).remove(&e.job);
                self.forget_lifted();
            }
            Entry::AttemptOpened(e) => self.open_attempt(e, version),
            Entry::Mixture(e) => {
                self.mixture = Arc::new(MixtureState {
                    id: e.id,
                    spec: e.spec.clone(),
                });
                for (name, &seq) in &e.from {
                    self.change(name, |p| {
                        p.mixtures.insert(seq, e.id);
                    });
                }
            }
            Entry::Stage(e) => {
                if let Some(mixture) = &e.mixture {
                    self.mixture = Arc::new(MixtureState {
                        id: mixture.id,
                        spec: mixture.spec.clone(),
                    });
                }
                self.apply_stage(e);
            }
            Entry::Quarantined(e) => Arc::make_mut(&mut self.quarantine).push(QuarantineState {
                id: e.request,
                first: e.first,
                last: e.last,
                reason: e.reason.clone(),
                added: version,
                lifted: None,
            }),
            Entry::QuarantineLifted(e) => {
                let all = Arc::make_mut(&mut self.quarantine).iter_mut();
                all.filter(|q| q.id == e.quarantine)
                    .for_each(|q| q.lifted = Some(version));
                self.forget_lifted();
            }
            Entry::Watermark(e) => {
                self.watermark = e.step;
                let jobs = Arc::make_mut(&mut self.jobs).values_mut();
                jobs.for_each(|job| job.forget_attempts(e.step));
            }
            _ => {}
        }
    }

    fn open_job(&mut self, e: &JobOpened, version: Version) {
        let job = JobState {
            opened: version,
            start: e.start,
            keep: e.keep,
            holds: e.holds,
            paces: e.paces,
            lease_seconds: e.lease_seconds,
            attempts: Vec::new(),
        };
        Arc::make_mut(&mut self.jobs).insert(e.job.clone(), job);
    }

    fn open_attempt(&mut self, e: &AttemptOpened, version: Version) {
        if let Some(job) = Arc::make_mut(&mut self.jobs).get_mut(&e.job) {
            job.supersede(self.next_step, &self.quarantine);
            let number = job.attempts_opened();
            job.attempts
                .push(AttemptState::opened_by(e, version, number));
        }
        self.forget_lifted();
    }

    /// Removes lifted quarantines, except those under which some job's newest attempt was opened.
    fn forget_lifted(&mut self) {
        let newest: Vec<_> = self
            .jobs
            .values()
            .filter_map(|job| job.attempts.last().map(|a| a.opened))
            .collect();
        Arc::make_mut(&mut self.quarantine).retain(|q| {
            q.lifted
                .is_none_or(|lifted| newest.iter().any(|&at| q.added < at && at < lifted))
        });
    }

    fn change(&mut self, name: &ProducerName, change: impl FnOnce(&mut ProducerState)) {
        if let Some(state) = self.producers.get_mut(name) {
            change(Arc::make_mut(state));
        }
    }

    fn remember(&mut self, id: RequestId) {
        let requests = Arc::make_mut(&mut self.requests);
        requests.push_back(id);
        if requests.len() > REQUESTS_KEPT {
            requests.pop_front();
        }
    }
}
