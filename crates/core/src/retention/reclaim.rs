//! The objects that are no longer needed, by one fold at or after the watermark's record.
//!
//! The rule for data: an object may be deleted when its epoch is over or its last sequence number is
//! below the producer's next, *and* no valid entry names it for a step at or above the watermark or
//! for a turn that has no step yet. That covers reclaimed data and orphans alike. Several TGBs may
//! share an object: it lives while any of them does.
//!
//! All answers of one value are by one manifest. With two, an object could be unnamed in the older one and
//! passed in the newer one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::attempt_objects::JobObjects;
use crate::guards;
use crate::ids::{Epoch, IdError, Nonce, ProducerName, Seq, Step, Version};
use crate::inputs::LinkId;
use crate::intent;
use crate::keys::{self, AliveKey, MarkKey, Owner, ProgressKey};
use crate::limits::{BUNDLES_KEPT, SEGMENT_STEPS, SNAPSHOTS_KEPT};
use crate::manifest::state::{JobState, ProducerState};
use crate::manifest::{Manifest, StepEntry};
use crate::tgb::TgbRecord;

/// Steps below the watermark for which reported losses are kept, unless a caller says otherwise.
pub const KEEP_LOSSES: u64 = 1_000_000;

/// The links of one input list.
pub type Links = Arc<BTreeSet<LinkId>>;

/// The fate of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It may be needed.
    Needed,
    /// No entry names it, and one still may.
    Uncommitted,
    /// It is not needed and may be deleted.
    Dead,
    /// Its name is not one of BatchWeave's: it stays.
    Foreign,
}

/// Returns the segments with steps from the watermark on that the manifest itself no longer holds.
pub fn retained_segments(m: &Manifest, watermark: Step) -> Range<u64> {
    let end = m.first_open_step() / SEGMENT_STEPS;
    (watermark / SEGMENT_STEPS).min(end)..end
}

/// The keys that steps from the watermark on and waiting TGBs name.
#[derive(Debug, Default)]
pub struct ReferencedObjects {
    keys: BTreeSet<String>,
    /// Used by a deliberate mistake only.
    below: BTreeSet<String>,
}

impl ReferencedObjects {
    /// Collects the keys that the manifest itself names; [`ReferencedObjects::step`] adds those of the
    /// retained segments.
    pub fn from_manifest(m: &Manifest, watermark: Step) -> Self {
        let mut named = Self::default();
        m.open_steps()
            .for_each(|entry| named.step(entry, watermark));
        m.waiting_tgbs().for_each(|tgb| named.tgb(tgb));
        named
    }

    /// Adds a step of a retained segment.
    pub fn step(&mut self, entry: &StepEntry, watermark: Step) {
        if entry.step >= watermark {
            self.tgb(&entry.tgb);
        } else if guards::deletes_shared_objects() {
            let parts = entry.tgb.parts.iter();
            self.below.extend(parts.map(|part| part.key.clone()));
        }
    }

    fn tgb(&mut self, tgb: &TgbRecord) {
        for key in tgb.parts.iter().map(|part| &part.key) {
            if !self.keys.contains(key) {
                self.keys.insert(key.clone());
            }
        }
        self.keys.extend(tgb.provenance.clone());
    }

    fn contains(&self, key: &str) -> bool {
        self.keys.contains(key) && !self.below.contains(key)
    }
}

/// The reclamation rules in one manifest.
#[derive(Debug)]
pub struct Reclaim<'m> {
    m: &'m Manifest,
    watermark: Step,
    keep_losses: u64,
}

impl<'m> Reclaim<'m> {
    /// Applies the rules in the manifest `m`.
    pub fn by(m: &'m Manifest) -> Self {
        let watermark = m.watermark();
        Self::at(m, watermark)
    }

    /// Applies the rules as if a watermark were published now: for plans, never for deletions.
    pub fn as_if(m: &'m Manifest, watermark: Step) -> Self {
        let watermark = watermark.max(m.watermark());
        Self::at(m, watermark)
    }

    fn at(m: &'m Manifest, watermark: Step) -> Self {
        Self {
            m,
            watermark,
            keep_losses: KEEP_LOSSES,
        }
    }

    /// Keeps the losses of this many steps below the watermark.
    #[must_use]
    pub fn keep_losses(mut self, steps: u64) -> Self {
        self.keep_losses = steps;
        self
    }

    /// Returns the oldest step that may be read.
    pub fn watermark(&self) -> Step {
        self.watermark
    }

    /// Returns the fate of an object under `data/`.
    pub fn data(&self, key: &str, named: &ReferencedObjects) -> Fate {
        let Some(object) = parse_data(key) else {
            return Fate::Foreign;
        };
        if named.contains(key) {
            return Fate::Needed;
        }
        if self.may_commit(&object) && !guards::deletes_uncommitted_objects() {
            return Fate::Uncommitted;
        }
        Fate::Dead
    }

    /// Returns the fate of an unfinished upload under `data/`: dead only when its epoch is over, since its
    /// owner may still be uploading.
    pub fn upload(&self, key: &str) -> Fate {
        match parse_data(key) {
            None => Fate::Foreign,
            Some(object) if self.epoch_over(&object) => Fate::Dead,
            Some(_) => Fate::Uncommitted,
        }
    }

    /// Returns the list that the producer's cursor refers to. Fails when the cursor is of an unknown kind.
    pub fn list_head(&self, producer: &ProducerName) -> Result<Option<LinkId>, IdError> {
        let state = self.m.producer(producer);
        state.map_or(Ok(None), ProducerState::input_list)
    }

    /// Returns the fate of a link of an input list. `chain` returns the links of the list that its
    /// producer's cursor refers to in this fold, finished producers' too, since provenance refers to them.
    /// Other links are dead when their opening is over, or when the current opening has passed them, since
    /// its lists only grow.
    pub fn inputs(&self, key: &str, chain: impl Fn(&ProducerName) -> Option<Links>) -> Fate {
        let Some((producer, link)) = keys::parse_inputs(key) else {
            return Fate::Foreign;
        };
        let Ok(head) = self.list_head(&producer) else {
            return Fate::Needed;
        };
        if head == Some(link) {
            return Fate::Needed;
        }
        let over = self.opening_over(&producer, (link.epoch, link.nonce));
        if link.may_be_named(head.as_ref(), over) {
            return Fate::Uncommitted;
        }
        // Every link is kept when the list was not read.
        if head.is_none() || chain(&producer).is_some_and(|links| !links.contains(&link)) {
            return Fate::Dead;
        }
        Fate::Needed
    }

    fn may_commit(&self, object: &DataKey) -> bool {
        let next = self.m.producer(&object.producer).map_or(0, |p| p.next_seq);
        !self.epoch_over(object) && object.last >= next
    }

    /// Returns whether no record can name objects of this folder any more. An epoch that is not opened in
    /// this fold is not over.
    fn epoch_over(&self, object: &DataKey) -> bool {
        self.opening_over(&object.producer, (object.epoch, object.nonce))
    }

    fn opening_over(&self, producer: &ProducerName, (epoch, nonce): (Epoch, Nonce)) -> bool {
        let Some(p) = self.m.producer(producer) else {
            return false;
        };
        let ended = p.finished || p.retired || p.nonce != nonce;
        epoch < p.epoch || (epoch == p.epoch && ended)
    }

    /// Returns the fate of an intent: dead when it can never be valid again. Intents of unknown epochs
    /// stay, unless their producer has finished and so opens none any more.
    pub fn intent(&self, key: &str) -> Fate {
        let Some((producer, epoch, what)) = keys::parse_intent(key) else {
            return Fate::Foreign;
        };
        let known = self
            .m
            .producer(&producer)
            .map_or(epoch == 0, |p| p.finished || epoch <= p.epoch);
        if known && intent::is_dead(self.m, &producer, epoch, &what) {
            Fate::Dead
        } else {
            Fate::Needed
        }
    }

    /// Returns the fate of an index segment or a bundle: dead when all steps of the segment are below the watermark,
    /// or enough newer bundles can follow.
    pub fn segment(&self, key: &str) -> Fate {
        if let Some(version) = keys::bundle_version(key) {
            let old = version + BUNDLES_KEPT < self.m.next_version();
            return if old { Fate::Dead } else { Fate::Needed };
        }
        match keys::segment_number(key) {
            None => Fate::Foreign,
            Some(number) if (number + 1) * SEGMENT_STEPS <= self.watermark => Fate::Dead,
            Some(_) => Fate::Needed,
        }
    }

    /// Returns the dead ones of all listed snapshots: all but the newest few that this fold has passed.
    pub fn snapshots(&self, listed: &[Version]) -> Vec<Version> {
        let head = self.m.next_version();
        let mut passed: Vec<_> = listed.iter().copied().filter(|v| *v < head).collect();
        passed.sort_unstable();
        let dead = passed.len().saturating_sub(SNAPSHOTS_KEPT);
        passed.truncate(dead);
        passed
    }

    /// Returns the fate of an object of a job's attempt. `objects` are those of its job, if it is open.
    /// Ledgers prove deliveries and are never deleted.
    pub fn job(&self, key: &str, objects: Option<&JobObjects>) -> Fate {
        if keys::parse_ledger(key).is_some() {
            return Fate::Needed;
        }
        if let Some(values) = keys::parse_values(key) {
            let old = values.last.saturating_add(self.keep_losses) < self.watermark;
            return if old { Fate::Dead } else { Fate::Needed };
        }
        let (mark, progress) = (keys::parse_mark(key), keys::parse_progress(key));
        let alive = keys::parse_alive(key);
        let owner = mark
            .as_ref()
            .map(|m| &m.owner)
            .or_else(|| progress.as_ref().map(|p| &p.owner));
        let Some(owner) = owner.or_else(|| alive.as_ref().map(|a| &a.owner)) else {
            return Fate::Foreign;
        };
        let dead = match self.job_of(owner) {
            JobLookup::Unknown => false,
            JobLookup::Closed => true,
            JobLookup::Open(job) => match (&mark, &progress, &alive) {
                (Some(mark), ..) => self.mark_dead(mark, job),
                (_, Some(progress), _) => progress_dead(progress, job, objects),
                (.., Some(alive)) => alive_dead(alive, job, objects),
                _ => false,
            },
        };
        if dead { Fate::Dead } else { Fate::Needed }
    }

    fn job_of(&self, owner: &Owner) -> JobLookup<'_> {
        let job = self.m.jobs().get(&owner.job);
        match job.filter(|job| job.opened == owner.opened) {
            Some(job) if owner.attempt < job.attempts_opened() => JobLookup::Open(job),
            None if owner.opened < self.m.next_version() => JobLookup::Closed,
            _ => JobLookup::Unknown,
        }
    }

    /// Returns whether a mark is dead. One below the watermark, or of an abandoned history, can't become a
    /// restart point again, and does not change the floor where it matters.
    fn mark_dead(&self, mark: &MarkKey, job: &JobState) -> bool {
        let later = job
            .attempts
            .iter()
            .filter(|later| later.number > mark.owner.attempt);
        let lowest = later.map(|attempt| attempt.start).min();
        mark.step < self.watermark || lowest.is_some_and(|start| mark.step > start)
    }
}

/// Returns whether progress is dead: of a superseded attempt, or older than that of each of its
/// coordinates.
fn progress_dead(progress: &ProgressKey, job: &JobState, objects: Option<&JobObjects>) -> bool {
    let attempt = progress.owner.attempt;
    if attempt + 1 < job.attempts_opened() {
        return true;
    }
    let Some(objects) = objects.and_then(|objects| objects.get(&attempt)) else {
        return false;
    };
    let newer = |at| {
        objects
            .progress
            .get(&at)
            .is_some_and(|step| *step > progress.step)
    };
    // The name may claim any number of coordinates: at most the existing ones are checked.
    objects.progress.len() as u64 > u64::from(progress.last - progress.first)
        && (progress.first..=progress.last).all(newer)
}

/// Returns whether a heartbeat is dead: of a superseded attempt, or replaced by its node.
fn alive_dead(alive: &AliveKey, job: &JobState, objects: Option<&JobObjects>) -> bool {
    let attempt = alive.owner.attempt;
    if attempt + 1 < job.attempts_opened() {
        return true;
    }
    let of_attempt = objects.and_then(|objects| objects.get(&attempt));
    let newest = of_attempt.and_then(|objects| objects.alive.get(&alive.node));
    newest.is_some_and(|newest| *newest > alive.beat)
}

enum JobLookup<'m> {
    Open(&'m JobState),
    Closed,
    /// Opened after this fold.
    Unknown,
}

/// The content of a data object's key.
struct DataKey {
    producer: ProducerName,
    epoch: u64,
    nonce: Nonce,
    last: Seq,
}

fn parse_data(key: &str) -> Option<DataKey> {
    let mut segments = key.strip_prefix(keys::DATA)?.split('/');
    let (producer, folder, name) = (segments.next()?, segments.next()?, segments.next()?);
    let (epoch, nonce) = folder.split_once('-')?;
    let (producer, nonce) = (producer.parse().ok()?, nonce.parse().ok()?);
    let epoch = epoch.parse().ok()?;
    // Only the form that BatchWeave writes is accepted, so that no other name is taken for one of its own.
    let written = key.starts_with(&keys::data_folder(&producer, epoch, nonce));
    let seqs = keys::data_seqs(name).or_else(|| keys::provenance_seqs(name));
    let (_, last) = seqs.filter(|_| written && segments.next().is_none())?;
    Some(DataKey {
        producer,
        epoch,
        nonce,
        last,
    })
}

#[cfg(test)]
mod tests;
