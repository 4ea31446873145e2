//! Producers: opening, uploading, announcing, committing alone or for others, finishing. The policy is
//! left open: any action may happen at any time, so that every policy is covered.

use batchweave_core::manifest::Void;
use batchweave_core::manifest::rules::Validity;

use crate::action::How;
use crate::guard::Guard;
use crate::numbers::{EntryNo, Node};
use crate::property::Property;
use crate::spec::{Object, Spec};
use crate::state::{Process, Producer, Role, Stage};
use crate::turn::Turn;

impl Turn<'_> {
    fn producer(&self, pid: u8) -> Option<Producer> {
        self.copy(pid).producer().copied()
    }

    fn set(&mut self, pid: u8, producer: Producer) {
        self.process(pid).role = Role::Producer(producer);
    }

    /// Ends a process, and clears the state that has no meaning any more.
    fn end(&mut self, pid: u8, producer: Producer, stage: Stage) {
        let role = Role::Producer(Producer {
            name: producer.name,
            instance: producer.instance,
            stage,
            ..Producer::default()
        });
        *self.process(pid) = Process {
            role,
            ..Process::default()
        };
    }

    /// Returns the fold by which a process validates: its own, or an older one without a guard.
    fn validation_fold(&self, pid: u8) -> Node {
        let process = self.copy(pid);
        [process.view, process.stale][usize::from(process.stale != 0)]
    }

    /// Starts an instance, which opens the log.
    pub fn start(&mut self, pid: u8) -> Option<()> {
        let mut producer = self.producer(pid)?;
        producer.stage = Stage::Opening;
        producer.announces = self.config.announces;
        self.set(pid, producer);
        self.refresh(pid);
        if let Some(mut producer) = self.producer(pid).filter(|p| p.stage == Stage::Opening) {
            producer.began = self.tables.facts(self.copy(pid).view).length;
            self.set(pid, producer);
        }
        if !self.keeps(Guard::StartAtRecord) {
            let facts = self.tables.facts(self.copy(pid).view);
            producer.start = facts.names[usize::from(producer.name)].next;
            self.set(pid, producer);
        }
        Some(())
    }

    /// Asks for the next epoch, with a record or an intent.
    pub fn open(&mut self, pid: u8, announce: bool) -> Option<()> {
        if self.refresh(pid) {
            return Some(());
        }
        let mut producer = self.producer(pid)?;
        let facts = self.tables.facts(self.validation_fold(pid));
        let name = facts.names[usize::from(producer.name)];
        if facts.sealed || name.finished {
            let stage = [Stage::Stopped, Stage::Done][usize::from(name.finished)];
            self.end(pid, producer, stage);
            return Some(());
        }
        let entry = self.tables.entry(Spec::Opened {
            producer: producer.name,
            instance: producer.instance,
            epoch: name.epoch + 1,
            began: producer.began,
        });
        producer.epoch = name.epoch + 1;
        if announce {
            let known = self.state.intents.as_slice().contains(&entry);
            if !self.config.announce_opens || producer.announces == 0 || known {
                return None;
            }
            producer.announces -= 1;
            self.state.intents.insert(entry);
        } else {
            self.want(pid, vec![entry]);
        }
        self.set(pid, producer);
        Some(())
    }

    /// Uploads the next object.
    pub fn upload(&mut self, pid: u8) -> Option<()> {
        let mut producer = self.producer(pid)?;
        if producer.packed >= self.config.tgbs {
            return None;
        }
        let split = self.config.object_split();
        let (first, last) = split.object(producer.start, producer.packed);
        let object = self.tables.object(Object {
            producer: producer.name,
            instance: producer.instance,
            epoch: producer.epoch,
            first,
            last,
        });
        self.state.objects |= 1 << object;
        producer.packed = last + 1;
        self.set(pid, producer);
        Some(())
    }

    fn batch(&mut self, producer: Producer, first: u8, end: u8) -> EntryNo {
        self.tables.entry(Spec::Batch {
            producer: producer.name,
            instance: producer.instance,
            epoch: producer.epoch,
            start: producer.start,
            first,
            last: end - 1,
        })
    }

    /// Announces the uploaded TGBs as an intent.
    pub fn announce(&mut self, pid: u8) -> Option<()> {
        let mut producer = self.producer(pid)?;
        let first = producer.announced.max(producer.base);
        if producer.announces == 0 || first >= producer.packed {
            return None;
        }
        let entry = self.batch(producer, first, producer.packed);
        self.state.intents.insert(entry);
        producer.announces -= 1;
        producer.announced = producer.packed;
        self.set(pid, producer);
        Some(())
    }

    /// Builds a record for the next version.
    pub fn commit(&mut self, pid: u8, how: How) -> Option<()> {
        if !self.keeps(Guard::StartAtRecord) {
            // It folds, but keeps its own position.
            self.catch_up(pid);
        } else if self.refresh(pid) {
            return Some(());
        }
        let producer = self.producer(pid)?;
        let view = self.validation_fold(pid);
        let mut entries = Vec::new();
        let end = producer.packed - u8::from(how == How::Half && producer.packed > 0);
        if how != How::Others {
            if producer.base >= end {
                return None;
            }
            entries.push(self.batch(producer, producer.base, end));
        }
        match how {
            How::Own => {}
            How::Half if self.keeps(Guard::WholeObjects) || self.config.group < 2 => return None,
            How::Half => {
                self.want(pid, entries);
                return Some(());
            }
            How::Others if !self.config.lead => return None,
            How::Others | How::Combined => {
                let own = entries.len();
                self.take_along(view, &mut entries);
                if entries.len() == own {
                    return None;
                }
            }
        }
        if how == How::Others || self.validate_own(pid, producer, view, &entries[..1]) {
            self.want(pid, entries);
        }
        Some(())
    }

    /// Returns true if its own entry may be committed. Otherwise the process has stopped.
    fn validate_own(&mut self, pid: u8, producer: Producer, view: Node, own: &[EntryNo]) -> bool {
        let Some(Err(void)) = self.tables.validate(view, own).first().cloned() else {
            return true;
        };
        let guard = match void {
            Void::WrongEpoch { current, .. } if current > u64::from(producer.epoch) => {
                Guard::HeedFence
            }
            Void::Sealed => Guard::HeedSeal,
            other => {
                let detail = format!("{}: {other}", self.tables.spec(own[0]));
                self.breaks(Property::NoSurprise, detail);
                return false;
            }
        };
        if self.keeps(guard) {
            self.end(pid, producer, Stage::Stopped);
        }
        !self.keeps(guard)
    }

    /// Adds intents that are valid after the entries present, and removes dead ones.
    fn take_along(&mut self, view: Node, entries: &mut Vec<EntryNo>) {
        for &intent in self.state.intents.clone().as_slice() {
            entries.push(intent);
            if !self.keeps(Guard::JudgeIntents) {
                continue;
            }
            let validity = self.tables.validate(view, entries).last().cloned();
            if validity != Some(Ok(Validity::Applies)) {
                entries.pop();
            }
            if let Some(Err(void)) = self.tables.validate(view, &[intent]).first()
                && is_dead(void)
            {
                self.state.intents.retain(|&other| other != intent);
            }
        }
    }

    /// Commits the end of its input.
    pub fn finish(&mut self, pid: u8) -> Option<()> {
        if self.refresh(pid) {
            return Some(());
        }
        let producer = self.producer(pid)?;
        if !self.config.finish || producer.base < self.config.tgbs {
            return None;
        }
        let entry = self.tables.entry(Spec::Finished {
            producer: producer.name,
            epoch: producer.epoch,
            final_seq: producer.base,
        });
        let view = self.validation_fold(pid);
        if self.validate_own(pid, producer, view, &[entry]) {
            self.want(pid, vec![entry]);
        }
        Some(())
    }

    /// Updates a producer from the folded log.
    pub fn observe_producer(&mut self, pid: u8, mut producer: Producer) {
        let facts = self.tables.facts(self.copy(pid).view);
        let (name, sealed) = (facts.names[usize::from(producer.name)], facts.sealed);
        if producer.stage == Stage::Opening {
            if name.began > producer.began && self.keeps(Guard::HeedNewer) {
                self.end(pid, producer, Stage::Stopped);
                return;
            }
            let ours = if self.keeps(Guard::OwnNonce) {
                name.epoch > 0 && name.instance == producer.instance
            } else {
                name.epoch > 0 && name.epoch == producer.epoch
            };
            if !ours {
                return;
            }
            producer.stage = Stage::Live;
            producer.began = 0;
            producer.epoch = name.epoch;
            if self.keeps(Guard::StartAtRecord) {
                producer.start = name.next;
            }
            (producer.base, producer.packed) = (producer.start, producer.start);
            if !self.keeps(Guard::StartAtRecord) {
                self.set(pid, producer);
                return;
            }
        }
        let ours = name.epoch == producer.epoch;
        if (!ours && self.keeps(Guard::HeedFence)) || (sealed && self.keeps(Guard::HeedSeal)) {
            if ours {
                self.acknowledge(producer.name, name.next);
            }
            self.end(pid, producer, Stage::Stopped);
            return;
        }
        if ours {
            producer.base = name.next;
            producer.packed = producer.packed.max(name.next);
            self.acknowledge(producer.name, name.next);
        }
        let done = name.next == self.config.tgbs && (!self.config.finish || name.finished);
        if ours && done {
            self.end(pid, producer, Stage::Done);
        } else {
            self.set(pid, producer);
        }
    }

    /// Notes that the process takes all TGBs below `next` for committed.
    fn acknowledge(&mut self, name: u8, next: u8) {
        let at = usize::from(name);
        self.state.acked[at] = self.state.acked[at].max(next);
        let committed = self.tables.facts(self.state.head).names[at].next;
        if next > committed {
            let detail =
                format!("p{name} takes {next} TGBs for committed, the log has {committed}");
            self.breaks(Property::Acknowledged, detail);
        }
    }

    /// Checks the data and acknowledgements against a new record.
    pub fn check_commit(&mut self, before: Node, head: Node) {
        let known = self.tables.facts(before).tgbs.len();
        let new = self.tables.facts(head).tgbs[known..].to_vec();
        for tgb in new {
            let bit = self.tables.object(tgb.object);
            if self.state.objects >> bit & 1 == 0 {
                let detail = format!(
                    "p{} seq {} was committed without data",
                    tgb.producer, tgb.row
                );
                self.breaks(Property::LiveData, detail);
            }
        }
        for (at, name) in self.tables.facts(head).names.iter().enumerate() {
            if name.next < self.state.acked[at] {
                let detail = format!("p{at} has {} TGBs in the log", name.next);
                self.broken = Some(crate::property::Broken::new(Property::Acknowledged, detail));
                break;
            }
        }
    }
}

/// Returns true if an intent can never become valid.
fn is_dead(void: &Void) -> bool {
    match void {
        Void::WrongSeq { next, found, .. } => found < next,
        Void::WrongEpoch { current, found, .. } => found <= current,
        Void::Finished(_) | Void::Retired { .. } => true,
        _ => false,
    }
}
