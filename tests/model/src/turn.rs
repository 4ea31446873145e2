//! One action, from the state before to the state after. This file has the parts common to all
//! processes: putting a record, resolving its outcome, folding. The roles have their own files.

use crate::action::Outcome;
use crate::config::Config;
use crate::guard::Guard;
use crate::numbers::{EntryNo, RecordNo};
use crate::property::{Broken, Property};
use crate::state::{Phase, Process, Role, State};
use crate::tables::{Draft, Tables};

/// An action in progress.
pub struct Turn<'a> {
    /// The entries, records and manifests behind the numbers.
    pub tables: &'a mut Tables,
    pub config: Config,
    /// The guard that is removed from the writers.
    pub without: Option<Guard>,
    pub state: State,
    /// The first broken property.
    pub broken: Option<Broken>,
}

impl Turn<'_> {
    /// Returns true if writers keep this guard.
    pub fn keeps(&self, guard: Guard) -> bool {
        self.without != Some(guard)
    }

    /// Returns a process, to change in place.
    pub fn process(&mut self, pid: u8) -> &mut Process {
        &mut self.state.processes.slice_mut()[usize::from(pid)]
    }

    /// Returns a copy of a process.
    pub fn copy(&self, pid: u8) -> Process {
        self.state.processes.as_slice()[usize::from(pid)]
    }

    /// Reports a broken property; the first report counts.
    pub fn breaks(&mut self, property: Property, detail: String) {
        self.broken
            .get_or_insert_with(|| Broken::new(property, detail));
    }

    /// Returns the record at a version of the store.
    fn stored(&self, version: u8) -> Option<RecordNo> {
        let beyond = self.state.beyond.as_slice();
        self.tables.at(self.state.head, version).or_else(|| {
            let there = |&&record: &&RecordNo| self.tables.record(record).version == version;
            beyond.iter().find(there).copied()
        })
    }

    /// Builds a record with these entries on top of the process's fold, to be put next.
    pub fn want(&mut self, pid: u8, entries: Vec<EntryNo>) {
        let draft = Draft {
            after: self.copy(pid).view,
            writer: pid,
            salt: 0,
            entries,
        };
        let record = self.tables.build(draft);
        let process = self.process(pid);
        (process.record, process.phase, process.salt) = (record, Phase::Put, 0);
    }

    /// Performs a put and its answer.
    pub fn send(&mut self, pid: u8, outcome: Outcome) -> Option<()> {
        let process = self.copy(pid);
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
            Outcome::Created => self.won(pid),
            Outcome::Exists | Outcome::MetItself if !self.keeps(Guard::ReadExists) => {
                self.go_beyond(pid);
            }
            Outcome::Exists | Outcome::MetItself => self.process(pid).phase = Phase::Resolve,
            Outcome::Lost | Outcome::Dropped | Outcome::Late => {
                let process = self.process(pid);
                (process.phase, process.doubt) = (Phase::Resolve, record);
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

    /// Without a guard: goes to the next version as if its own record were committed at this one.
    fn go_beyond(&mut self, pid: u8) {
        let process = self.copy(pid);
        let draft = Draft {
            after: process.view,
            writer: pid,
            salt: process.salt + 1,
            entries: self.tables.record(process.record).entries.clone(),
        };
        let record = self.tables.build_beyond(process.record, draft);
        let process = self.process(pid);
        (process.record, process.phase) = (record, Phase::Put);
        process.salt += 1;
    }

    /// Resolves any answer but a clear success: the object at the version decides.
    pub fn read(&mut self, pid: u8) {
        let process = self.copy(pid);
        let sent = self.tables.record(process.record);
        match self.stored(sent.version) {
            Some(record) if record == process.record => self.won(pid),
            Some(other) => self.lost(pid, other),
            None if !self.keeps(Guard::StayAtVersion) => self.go_beyond(pid),
            None if !self.keeps(Guard::SameBytes) => {
                let draft = Draft {
                    after: process.view,
                    writer: pid,
                    salt: process.salt + 1,
                    entries: sent.entries.clone(),
                };
                let record = self.tables.build(draft);
                let process = self.process(pid);
                (process.record, process.phase) = (record, Phase::Put);
                process.salt += 1;
            }
            None => self.process(pid).phase = Phase::Put,
        }
    }

    fn won(&mut self, pid: u8) {
        let process = self.copy(pid);
        let view = self.tables.fold(process.view, process.record);
        let read = self.tables.record(process.record).version + 1;
        self.settle(pid, view, read);
        self.observe(pid);
    }

    fn lost(&mut self, pid: u8, winner: RecordNo) {
        let process = self.copy(pid);
        let view = self.tables.fold(process.view, winner);
        let read = self.tables.record(winner).version + 1;
        let entries = self.tables.record(process.record).entries.clone();
        self.settle(pid, view, read);
        if !self.keeps(Guard::FoldWinner) {
            // It knows the winner's bytes, so its chain is right; it validates by the older fold.
            let stale = [process.stale, process.view];
            self.process(pid).stale = stale[usize::from(process.stale == 0)];
        } else if !self.keeps(Guard::Rejudge) {
            self.catch_up(pid);
            self.want(pid, entries);
        } else {
            // A writer that lost one version is probably behind by several.
            self.catch_up(pid);
            self.observe(pid);
            if self.insists() {
                self.insist(pid, &entries);
            }
        }
    }

    fn settle(&mut self, pid: u8, view: u32, read: u8) {
        let process = self.process(pid);
        (process.view, process.read) = (view, read);
        (process.record, process.doubt, process.salt) = (0, 0, 0);
        process.phase = Phase::Rest;
    }

    /// Folds up to the head of the store's log.
    pub fn catch_up(&mut self, pid: u8) {
        let head = self.state.head;
        let length = self.tables.facts(head).length;
        let process = self.process(pid);
        if process.stale == 0 {
            (process.view, process.read) = (head, length);
        }
    }

    /// Folds up to the head and updates the process. Returns true if that changed its role.
    pub fn refresh(&mut self, pid: u8) -> bool {
        let before = self.copy(pid).role;
        self.catch_up(pid);
        if self.copy(pid).stale == 0 {
            self.observe(pid);
        }
        self.copy(pid).role != before
    }

    /// Clears the folds of resting processes. A writer folds up to the head before it builds a
    /// record, because one built by an older state could only lose its version. So such folds make
    /// no difference, and states that differ only in them become one.
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

    /// Updates a process from the log that it has folded.
    fn observe(&mut self, pid: u8) {
        match self.copy(pid).role {
            Role::Producer(producer) => self.observe_producer(pid, producer),
            Role::Trainer(trainer) => self.observe_trainer(pid, trainer),
            Role::Sealer { done } => self.observe_seal(pid, done),
            Role::Operator { .. } => self.observe_job(pid),
            Role::Reclaimer(_) | Role::Person { .. } | Role::Dead => {}
        }
    }

    /// Lets a put take effect in the store.
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
        // A put below the head cannot take effect any more.
        let length = self.tables.facts(self.state.head).length;
        let tables = &self.tables;
        let open = |&put: &RecordNo| tables.record(put).version >= length;
        self.state.flight.retain(open);
    }

    /// Extends the log by a record, and checks it, its data and the restart points.
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
