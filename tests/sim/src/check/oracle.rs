//! The log, read by rules that are written a second time, from docs/protocol.md and not from the fold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use batchweave_core::ids::{Epoch, Hash, Nonce, ProducerName, Seq, Version};
use batchweave_core::keys;
use batchweave_core::manifest::entry::{BatchEntry, Finished, Opened, Stage};
use batchweave_core::manifest::{Entry, Record};
use batchweave_core::stream::StreamOrder;
use bytes::Bytes;

use crate::evidence::{Evidence, Violation};
use crate::store::Landed;
use crate::world::content::{MadeBy, cursor, digest};
use crate::world::faulty::FAULTY;
use crate::world::shared::name;

/// A committed TGB in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tgb {
    pub(super) producer: ProducerName,
    pub(super) seq: Seq,
    pub(super) epoch: Epoch,
    pub(super) version: Version,
    /// The version that assigned its step.
    pub(super) placed: Version,
    pub(super) objects: Vec<String>,
}

/// The content of the log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The bytes of its records.
    pub(super) records: Vec<Bytes>,
    /// The records of the faulty program, whose entries must not count.
    pub(super) void: BTreeSet<Version>,
    /// The TGBs in the order of their steps.
    pub(super) steps: Vec<Tgb>,
    /// The number of stages.
    stages: u64,
    /// The producers, with the TGBs that wait for their turn.
    pub(super) producers: BTreeMap<ProducerName, Producer>,
}

#[derive(Debug, Default)]
pub(super) struct Producer {
    pub(super) epoch: Epoch,
    pub(super) nonce: Option<Nonce>,
    /// The head when that instance began.
    began: Version,
    pub(super) next: Seq,
    pub(super) finished: bool,
    retired: bool,
    /// Mixtures by the first sequence number at which they apply.
    mixtures: BTreeMap<Seq, u64>,
    /// Stages by the first sequence number at which they apply.
    stages: BTreeMap<Seq, u64>,
    /// Committed TGBs without a step.
    pub(super) waiting: VecDeque<Tgb>,
}

struct Oracle<'a> {
    evidence: &'a Evidence,
    found: &'a mut Vec<Violation>,
    landed: BTreeMap<&'a str, &'a Landed>,
    sealed: bool,
    turn: usize,
    version: Version,
    at: Duration,
    actor: u32,
    log: Log,
}

pub(super) fn check(evidence: &Evidence, found: &mut Vec<Violation>) -> Log {
    // The first one counts: a retry of an upload may create the object again after its deletion.
    let landed = evidence.landed.iter().rev().map(|l| (l.key.as_ref(), l));
    let mut oracle = Oracle {
        landed: landed.collect(),
        evidence,
        found,
        sealed: false,
        turn: 0,
        version: 0,
        at: Duration::ZERO,
        actor: 0,
        log: Log::default(),
    };
    oracle.read();
    oracle.at_the_end();
    oracle.log
}

impl Oracle<'_> {
    fn wrong(&mut self, check: &'static str, text: String) {
        let found = Violation::new(check, Some(self.version), text).by(self.actor, self.at);
        self.found.push(found);
    }

    fn read(&mut self) {
        let mut prev = Hash::sha256(&self.evidence.stream_json);
        while let Some(body) = self.evidence.objects.get(keys::log(self.version).as_str()) {
            if let Some(landed) = self.landed.get(keys::log(self.version).as_str()) {
                (self.at, self.actor) = (landed.at, landed.actor);
            }
            let faulty = self.evidence.actor(self.actor) == FAULTY;
            match Record::from_json(body, self.version) {
                _ if faulty => drop(self.log.void.insert(self.version)),
                Ok(record) => {
                    let same = record.stream == self.evidence.stream.stream_id;
                    if record.version != self.version || !same || record.prev != prev {
                        self.wrong("chain", "the record does not continue the log".into());
                    }
                    for entry in &record.entries {
                        self.entry(entry);
                    }
                }
                Err(e) => self.wrong("chain", e.to_string()),
            }
            prev = Hash::sha256(body);
            self.log.records.push(body.clone());
            self.version += 1;
        }
        let records = self
            .evidence
            .objects
            .keys()
            .filter(|k| k.starts_with(keys::LOG))
            .count() as u64;
        if records != self.version {
            let text = format!("{records} records, but none at {}", self.version);
            self.wrong("gap", text);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Opened(e) => self.opened(e),
            Entry::Batch(e) => self.batch(e),
            Entry::Finished(e) => self.finished(e),
            Entry::Sealed(_) => self.sealed = true,
            Entry::Unsealed(_) => self.sealed = false,
            Entry::Retired(e) => {
                let state = self.log.producers.entry(e.producer.clone()).or_default();
                state.retired |= e.epoch == state.epoch;
            }
            Entry::Mixture(e) => {
                for (producer, seq) in &e.from {
                    let state = self.log.producers.entry(producer.clone()).or_default();
                    state.mixtures.insert(*seq, e.id);
                }
            }
            Entry::Stage(e) => self.stage(e),
            // `lifecycle` checks these entries.
            Entry::JobOpened(_)
            | Entry::JobClosed(_)
            | Entry::AttemptOpened(_)
            | Entry::Quarantined(_)
            | Entry::QuarantineLifted(_)
            | Entry::Watermark(_)
                if self.evidence.plan.life.is_some() => {}
            other => self.wrong("void", format!("no actor may write {}", other.kind())),
        }
        self.place();
    }

    fn stage(&mut self, e: &Stage) {
        self.log.stages += 1;
        let left_out = self.log.producers.iter().find(|(name, state)| {
            state.epoch > 0 && !state.finished && !e.from.contains_key(*name)
        });
        if let Some((name, _)) = left_out {
            let text = format!("stage {} leaves out {name}", e.id);
            self.wrong("stage", text);
        }
        for (producer, seq) in &e.from {
            let state = self.log.producers.entry(producer.clone()).or_default();
            let next = state.next;
            state.stages.insert(*seq, e.id);
            if *seq < next {
                let text = format!(
                    "stage {} begins with {producer} {seq}: {next} is next",
                    e.id
                );
                self.wrong("stage", text);
            }
        }
    }

    fn finished(&mut self, e: &Finished) {
        let state = self.log.producers.entry(e.producer.clone()).or_default();
        let (epoch, next) = (state.epoch, state.next);
        state.finished = true;
        if e.epoch != epoch {
            let text = format!("{} finishes in term {}, not {epoch}", e.producer, e.epoch);
            self.wrong("fence", text);
        }
        if e.final_seq != next {
            let text = format!("{} finishes at {}, not {next}", e.producer, e.final_seq);
            self.wrong("exactly-once", text);
        }
    }

    fn opened(&mut self, e: &Opened) {
        let newest = self.log.stages;
        let state = self.log.producers.entry(e.producer.clone()).or_default();
        let (before, finished) = (state.epoch, state.finished);
        let older = e.began < state.began && e.epoch > 1;
        // A producer that opens first behind a stage begins in it.
        if before == 0 && state.stages.is_empty() && newest > 0 {
            state.stages.insert(0, newest);
        }
        state.epoch = e.epoch;
        state.retired = false;
        (state.nonce, state.began) = (Some(e.nonce), e.began);
        if older {
            let text = format!("{} term {} fences a newer instance", e.producer, e.epoch);
            self.wrong("newest", text);
        }
        if e.epoch != before + 1 || finished {
            let text = format!("{} opens term {} after {before}", e.producer, e.epoch);
            self.wrong("fence", text);
        }
    }

    fn batch(&mut self, e: &BatchEntry) {
        let state = self.log.producers.entry(e.producer.clone()).or_default();
        let (epoch, next, nonce) = (state.epoch, state.next, state.nonce);
        let over = state.finished || state.retired;
        let in_force = |changes: &BTreeMap<Seq, u64>, seq| {
            changes.range(..=seq).next_back().map_or(0, |(_, id)| *id)
        };
        let mixed = (e.first_seq..=e.last_seq).any(|seq| {
            let mixture = in_force(&state.mixtures, seq);
            (mixture, in_force(&state.stages, seq)) != (e.mixture, e.stage)
        });
        state.next = state.next.max(e.last_seq + 1);
        let who = format!("{} {}..={}", e.producer, e.first_seq, e.last_seq);
        self.made_of_its_change(e, mixed, &who);
        if e.epoch != epoch || over || self.sealed {
            let text = format!(
                "{who} of term {} came when term {epoch} was in force (over {over}, sealed {})",
                e.epoch, self.sealed
            );
            self.wrong("fence", text);
        }
        if e.first_seq < next {
            self.wrong("exactly-once", format!("{who} again: {next} is next"));
        } else if e.first_seq > next {
            self.wrong("producer-order", format!("{who} too early: {next} is next"));
        }
        if e.cursor_before != cursor(e.first_seq).hash() || e.cursor != cursor(e.last_seq + 1) {
            self.wrong("cursor", format!("{who} has other cursors than the input"));
        }
        for (seq, tgb) in (e.first_seq..).zip(&e.tgbs) {
            if tgb.digest != digest(&e.producer, seq) {
                self.wrong(
                    "exactly-once",
                    format!("{} {seq} is another TGB", e.producer),
                );
            }
            for part in &tgb.parts {
                self.object(e, &part.key, nonce);
            }
            self.waits(
                e,
                seq,
                tgb.parts.iter().map(|part| part.key.clone()).collect(),
            );
        }
    }

    fn made_of_its_change(&mut self, e: &BatchEntry, mixed: bool, who: &str) {
        let made: Vec<_> = e
            .tgbs
            .iter()
            .flat_map(|tgb| &tgb.parts)
            .filter_map(|part| MadeBy::of_key(&part.key))
            .collect();
        let own = MadeBy {
            mixture: e.mixture,
            stage: e.stage,
        };
        if mixed || made.iter().any(|made| *made != own) {
            let text = format!("{who} is of {own:?}, and made by {made:?}");
            self.wrong("mixture", text);
        }
    }

    /// Appends a committed TGB to those that wait for their turn.
    fn waits(&mut self, e: &BatchEntry, seq: Seq, objects: Vec<String>) {
        let state = self.log.producers.entry(e.producer.clone()).or_default();
        state.waiting.push_back(Tgb {
            producer: e.producer.clone(),
            seq,
            epoch: e.epoch,
            version: self.version,
            placed: Version::MAX,
            objects,
        });
    }

    fn object(&mut self, e: &BatchEntry, key: &str, nonce: Option<Nonce>) {
        let folder = nonce.map(|n| keys::data_folder(&e.producer, e.epoch, n));
        let range = folder
            .and_then(|f| key.strip_prefix(f.as_str()).and_then(keys::data_seqs))
            .unwrap_or((0, u64::MAX));
        let whole = range.0 >= e.first_seq && range.1 <= e.last_seq;
        if !whole {
            self.wrong("whole-objects", format!("{key} is committed in part"));
        }
        match self.landed.get(key) {
            Some(landed) if landed.at <= self.at => {}
            _ => self.wrong(
                "uploaded",
                format!("{key} was committed before it was there"),
            ),
        }
    }

    /// Assigns steps in the order of the log, or in turns.
    fn place(&mut self) {
        if self.evidence.stream.order == StreamOrder::Arrival {
            let log = &mut self.log;
            for state in log.producers.values_mut() {
                for tgb in state.waiting.drain(..) {
                    let placed = self.version;
                    log.steps.push(Tgb { placed, ..tgb });
                }
            }
            return;
        }
        let lanes = &self.evidence.stream.producers;
        let mut passed = 0;
        while passed < lanes.len() && !self.sealed {
            let Some(state) = self.log.producers.get_mut(&lanes[self.turn]) else {
                return;
            };
            match state.waiting.pop_front() {
                Some(tgb) => {
                    let placed = self.version;
                    self.log.steps.push(Tgb { placed, ..tgb });
                    passed = 0;
                }
                None if state.finished => passed += 1,
                None => return,
            }
            self.turn = (self.turn + 1) % lanes.len();
        }
    }

    fn at_the_end(&mut self) {
        for plan in &self.evidence.plan.producers {
            let producer = name(plan.number);
            let state = self.log.producers.get(&producer);
            let (next, finished) = state.map_or((0, false), |p| (p.next, p.finished));
            if !self.sealed && (next != plan.tgbs || !finished) {
                let text = format!("{producer} ended at {next} of {} TGBs", plan.tgbs);
                self.wrong("exactly-once", text);
            }
            let told = self.evidence.acknowledged.get(&plan.number);
            if let Some(&told) = told.filter(|&&told| told > next) {
                let text = format!("{producer} was told of {told} TGBs, the log holds {next}");
                self.wrong("acknowledged", text);
            }
        }
    }
}
