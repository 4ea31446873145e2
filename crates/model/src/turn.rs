//! One action, from the state before to the state after. This file has what all processes share:
//! putting a record, resolving its outcome, folding; the roles are in files of their own.

use crate::action::Outcome;
use crate::config::Config;
use crate::guard::Guard;
use crate::property::{Broken, Property};
use crate::state::{Phase, Process, Role, State};
use crate::tables::{Draft, EntryNo, RecordNo, Tables};

/// An action under way.
pub struct Turn<'a> {
    /// What numbers stand for.
    pub tables: &'a mut Tables,
    /// The bounds.
    pub config: Config,
    /// The guard that writers lack.
    pub without: Option<Guard>,
    /// The state, changed in place.
    pub state: State,
    /// The first property that broke.
    pub broken: Option<Broken>,
}

impl Turn<'_> {
    /// Whether writers keep this guard.
    pub fn keeps(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// A process, to change in place.
    pub fn process(&mut self, who: u8) -> &mut Process {
        &mut self.state.processes.slice_mut()[usize::from(who)]
    }

    /// A copy of a process.
    pub fn copy(&self, who: u8) -> Process {
        self.state.processes.as_slice()[usize::from(who)]
    }

    /// Notes a broken property; the first one counts.
    pub fn breaks(&mut self, property: Property, detail: String) {
        self.broken
            .get_or_insert_with(|| Broken::new(property, detail));
    }

    /// The record at a version of the store.
    fn stored(&self, version: u8) -> Option<RecordNo> {
        let beyond = self.state.beyond.as_slice();
        self.tables.at(self.state.head, version).or_else(|| {
            let there = |&&record: &&RecordNo| self.tables.record(record).version == version;
            beyond.iter().find(there).copied()
        })
    }

    /// The process wants a record with these entries after what it has folded.
    pub fn want(&mut self, who: u8, entries: Vec<EntryNo>) {
        let draft = Draft {
            after: self.copy(who).view,
            writer: who,
            salt: 0,
            entries,
        };
        let record = self.tables.build(draft);
        let process = self.process(who);
        (process.record, process.phase, process.salt) = (record, Phase::Put, 0);
    }

    /// A put and its answer.
    pub fn send(&mut self, who: u8, outcome: Outcome) -> Option<()> {
        let process = self.copy(who);
        let record = process.record;
        let there = self.stored(self.tables.record(record).version).is_some();
        let possible = match outcome {
            Outcome::Dropped => true,
            Outcome::Exists => there,
            Outcome::Late => !there && !self.state.flight.is_full(),
            Outcome::Created | Outcome::MetItself | Outcome::Lost => !there,
        };
        if !possible {
            return None;
        }
        self.check_put(&process);
        self.state.faults -= u8::from(outcome.is_fault());
        match outcome {
            Outcome::Created | Outcome::MetItself | Outcome::Lost => self.land(record),
            Outcome::Late => self.state.flight.insert(record),
            Outcome::Exists | Outcome::Dropped => {}
        }
        match outcome {
            Outcome::Created => self.won(who),
            Outcome::Exists | Outcome::MetItself if !self.keeps(Guard::ReadExists) => {
                self.go_beyond(who);
            }
            Outcome::Exists | Outcome::MetItself => self.process(who).phase = Phase::Ask,
            Outcome::Lost | Outcome::Dropped | Outcome::Late => {
                let process = self.process(who);
                (process.phase, process.doubt) = (Phase::Ask, record);
            }
        }
        Some(())
    }

    fn check_put(&mut self, process: &Process) {
        let version = self.tables.record(process.record).version;
        if process.read < version {
            let read = process.read;
            let detail = format!("a put at version {version} with {read} versions read");
            self.breaks(Property::ReadBeforePut, detail);
        }
        let doubt = process.doubt;
        let other = doubt != 0 && doubt != process.record;
        if other && self.tables.record(doubt).version == version {
            let detail = format!("other bytes at version {version}");
            self.breaks(Property::SameBytes, detail);
        }
    }

    /// Without a guard: the next version, as if the own record were known to be at this one.
    fn go_beyond(&mut self, who: u8) {
        let process = self.copy(who);
        let draft = Draft {
            after: process.view,
            writer: who,
            salt: process.salt + 1,
            entries: self.tables.record(process.record).entries.clone(),
        };
        let record = self.tables.build_beyond(process.record, draft);
        let process = self.process(who);
        (process.record, process.phase) = (record, Phase::Put);
        process.salt += 1;
    }

    /// After anything but a clear yes: the object at the version decides.
    pub fn read(&mut self, who: u8) {
        let process = self.copy(who);
        let sent = self.tables.record(process.record);
        match self.stored(sent.version) {
            Some(record) if record == process.record => self.won(who),
            Some(other) => self.lost(who, other),
            None if !self.keeps(Guard::StayAtVersion) => self.go_beyond(who),
            None if !self.keeps(Guard::SameBytes) => {
                let draft = Draft {
                    after: process.view,
                    writer: who,
                    salt: process.salt + 1,
                    entries: sent.entries.clone(),
                };
                let record = self.tables.build(draft);
                let process = self.process(who);
                (process.record, process.phase) = (record, Phase::Put);
                process.salt += 1;
            }
            None => self.process(who).phase = Phase::Put,
        }
    }

    fn won(&mut self, who: u8) {
        let process = self.copy(who);
        let view = self.tables.fold(process.view, process.record);
        let read = self.tables.record(process.record).version + 1;
        self.settle(who, view, read);
        self.observe(who);
    }

    fn lost(&mut self, who: u8, winner: RecordNo) {
        let process = self.copy(who);
        let view = self.tables.fold(process.view, winner);
        let read = self.tables.record(winner).version + 1;
        let entries = self.tables.record(process.record).entries.clone();
        self.settle(who, view, read);
        if !self.keeps(Guard::FoldWinner) {
            // It knows the winner's bytes, so its chain is right; it judges as before.
            let stale = [process.stale, process.view];
            self.process(who).stale = stale[usize::from(process.stale == 0)];
        } else if !self.keeps(Guard::Rejudge) {
            self.catch_up(who);
            self.want(who, entries);
        } else {
            // Whoever lost one version is likely behind by several.
            self.catch_up(who);
            self.observe(who);
            if self.insists() {
                self.insist(who, &entries);
            }
        }
    }

    fn settle(&mut self, who: u8, view: u32, read: u8) {
        let process = self.process(who);
        (process.view, process.read) = (view, read);
        (process.record, process.doubt, process.salt) = (0, 0, 0);
        process.phase = Phase::Rest;
    }

    /// Folds up to the head. What it folds are the store's bytes, so it gets the store's log.
    pub fn catch_up(&mut self, who: u8) {
        let head = self.state.head;
        let length = self.tables.facts(head).length;
        let process = self.process(who);
        if process.stale == 0 {
            (process.view, process.read) = (head, length);
        }
    }

    /// Folds up to the head and draws conclusions; true when there were any.
    pub fn look(&mut self, who: u8) -> bool {
        let before = self.copy(who).role;
        self.catch_up(who);
        if self.copy(who).stale == 0 {
            self.observe(who);
        }
        self.copy(who).role != before
    }

    /// Whoever builds a record folds up to the head first: one built by an older state could only
    /// lose its version. So what a resting process has folded makes no difference, and states that
    /// differ in it alone are made one.
    pub fn forget_views(&mut self) {
        let mixes = !self.keeps(Guard::OneFold);
        for process in self.state.processes.slice_mut() {
            let needed = match process.role {
                Role::Reclaimer(reclaimer) => reclaimer.deletes || mixes,
                _ => process.stale != 0,
            };
            if process.phase == Phase::Rest && !needed {
                (process.view, process.read) = (0, 0);
            }
        }
    }

    /// A process draws its conclusions from what it has folded.
    fn observe(&mut self, who: u8) {
        match self.copy(who).role {
            Role::Producer(producer) => self.observe_producer(who, producer),
            Role::Trainer(trainer) => self.observe_trainer(who, trainer),
            Role::Sealer { done } => self.observe_seal(who, done),
            Role::Operator { .. } => self.observe_job(who),
            Role::Reclaimer(_) | Role::Person { .. } | Role::Dead => {}
        }
    }

    /// A put reaches the store.
    pub fn land(&mut self, record: RecordNo) {
        let version = self.tables.record(record).version;
        if self.stored(version).is_some() {
            return;
        }
        if version > self.tables.facts(self.state.head).length {
            self.state.beyond.insert(record);
            return;
        }
        self.extend(record);
        while let Some(next) = {
            let length = self.tables.facts(self.state.head).length;
            let beyond = self.state.beyond.as_slice().iter().copied();
            let tables = &self.tables;
            beyond
                .clone()
                .find(|&record| tables.record(record).version == length)
        } {
            self.state.beyond.retain(|&record| record != next);
            self.extend(next);
        }
        // A put below the head can't happen any more.
        let length = self.tables.facts(self.state.head).length;
        let tables = &self.tables;
        let open = |&put: &RecordNo| tables.record(put).version >= length;
        self.state.flight.retain(open);
    }

    /// The log grows by a record: what it breaks, and what it means for data and restart points.
    fn extend(&mut self, record: RecordNo) {
        let before = self.state.head;
        let head = self.tables.fold(before, record);
        self.state.head = head;
        if let Some(broken) = self.tables.node(head).broken.clone() {
            self.broken.get_or_insert(broken);
        }
        self.check_commit(before, head);
        self.check_jobs(before, head);
    }
}
