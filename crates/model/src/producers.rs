//! Producers: opening, uploading, announcing, committing alone or for others, finishing. The policy
//! (when to do what) is left open: anything may happen at any time, so that every policy is covered.

use batchweave_core::manifest::Void;
use batchweave_core::manifest::rules::Validity;

use crate::action::How;
use crate::guard::Guard;
use crate::property::Property;
use crate::spec::{Object, Spec};
use crate::state::{Process, Producer, Role, Stage};
use crate::tables::{EntryNo, Node};
use crate::turn::Turn;

impl Turn<'_> {
    fn producer(&self, who: u8) -> Option<Producer> {
        self.copy(who).producer().copied()
    }

    fn set(&mut self, who: u8, producer: Producer) {
        self.process(who).role = Role::Producer(producer);
    }

    /// Nothing of a process that has ended matters but that it has.
    fn end(&mut self, who: u8, producer: Producer, stage: Stage) {
        let role = Role::Producer(Producer {
            name: producer.name,
            instance: producer.instance,
            stage,
            ..Producer::default()
        });
        *self.process(who) = Process {
            role,
            ..Process::default()
        };
    }

    /// What a process judges by: what it has folded, unless it lacks a guard.
    fn judging(&self, who: u8) -> Node {
        let process = self.copy(who);
        [process.view, process.stale][usize::from(process.stale != 0)]
    }

    /// An instance opens the log.
    pub fn start(&mut self, who: u8) -> Option<()> {
        let mut producer = self.producer(who)?;
        producer.stage = Stage::Opening;
        producer.announces = self.config.announces;
        self.set(who, producer);
        self.look(who);
        if let Some(mut producer) = self.producer(who).filter(|p| p.stage == Stage::Opening) {
            producer.began = self.tables.facts(self.copy(who).view).length;
            self.set(who, producer);
        }
        if !self.keeps(Guard::StartAtRecord) {
            let facts = self.tables.facts(self.copy(who).view);
            producer.start = facts.names[usize::from(producer.name)].next;
            self.set(who, producer);
        }
        Some(())
    }

    /// It wants the next epoch, directly or by an intent.
    pub fn open(&mut self, who: u8, announce: bool) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let mut producer = self.producer(who)?;
        let facts = self.tables.facts(self.judging(who));
        let name = facts.names[usize::from(producer.name)];
        if facts.sealed || name.finished {
            let stage = [Stage::Stopped, Stage::Done][usize::from(name.finished)];
            self.end(who, producer, stage);
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
            self.want(who, vec![entry]);
        }
        self.set(who, producer);
        Some(())
    }

    /// The next object goes up.
    pub fn upload(&mut self, who: u8) -> Option<()> {
        let mut producer = self.producer(who)?;
        if producer.packed >= self.config.tgbs {
            return None;
        }
        let cut = self.config.cut();
        let (first, last) = cut.object(producer.start, producer.packed);
        let object = self.tables.object(Object {
            producer: producer.name,
            instance: producer.instance,
            epoch: producer.epoch,
            first,
            last,
        });
        self.state.objects |= 1 << object;
        producer.packed = last + 1;
        self.set(who, producer);
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

    /// What is uploaded and not announced becomes an intent.
    pub fn announce(&mut self, who: u8) -> Option<()> {
        let mut producer = self.producer(who)?;
        let first = producer.announced.max(producer.base);
        if producer.announces == 0 || first >= producer.packed {
            return None;
        }
        let entry = self.batch(producer, first, producer.packed);
        self.state.intents.insert(entry);
        producer.announces -= 1;
        producer.announced = producer.packed;
        self.set(who, producer);
        Some(())
    }

    /// It builds a record for the next version.
    pub fn commit(&mut self, who: u8, how: How) -> Option<()> {
        if !self.keeps(Guard::StartAtRecord) {
            // It folds, but holds on to where it believes it stands.
            self.catch_up(who);
        } else if self.look(who) {
            return Some(());
        }
        let producer = self.producer(who)?;
        let view = self.judging(who);
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
                self.want(who, entries);
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
        if how == How::Others || self.judge_own(who, producer, view, &entries[..1]) {
            self.want(who, entries);
        }
        Some(())
    }

    /// Says whether an entry of its own may go out; if not, the process has stopped.
    fn judge_own(&mut self, who: u8, producer: Producer, view: Node, own: &[EntryNo]) -> bool {
        let Some(Err(void)) = self.tables.judge(view, own).first().cloned() else {
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
            self.end(who, producer, Stage::Stopped);
        }
        !self.keeps(guard)
    }

    /// Adds intents that are valid after what is there already, and removes dead ones.
    fn take_along(&mut self, view: Node, entries: &mut Vec<EntryNo>) {
        for &intent in self.state.intents.clone().as_slice() {
            entries.push(intent);
            if !self.keeps(Guard::JudgeIntents) {
                continue;
            }
            let verdict = self.tables.judge(view, entries).last().cloned();
            if verdict != Some(Ok(Validity::Applies)) {
                entries.pop();
            }
            if let Some(Err(void)) = self.tables.judge(view, &[intent]).first()
                && is_dead(void)
            {
                self.state.intents.retain(|&other| other != intent);
            }
        }
    }

    /// It says that it has no more.
    pub fn finish(&mut self, who: u8) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let producer = self.producer(who)?;
        if !self.config.finish || producer.base < self.config.tgbs {
            return None;
        }
        let entry = self.tables.entry(Spec::Finished {
            producer: producer.name,
            epoch: producer.epoch,
            final_seq: producer.base,
        });
        let view = self.judging(who);
        if self.judge_own(who, producer, view, &[entry]) {
            self.want(who, vec![entry]);
        }
        Some(())
    }

    /// What a producer learns from the log.
    pub fn observe_producer(&mut self, who: u8, mut producer: Producer) {
        let facts = self.tables.facts(self.copy(who).view);
        let (name, sealed) = (facts.names[usize::from(producer.name)], facts.sealed);
        if producer.stage == Stage::Opening {
            if name.began > producer.began && self.keeps(Guard::HeedNewer) {
                self.end(who, producer, Stage::Stopped);
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
                self.set(who, producer);
                return;
            }
        }
        let ours = name.epoch == producer.epoch;
        if (!ours && self.keeps(Guard::HeedFence)) || (sealed && self.keeps(Guard::HeedSeal)) {
            if ours {
                self.acknowledge(producer.name, name.next);
            }
            self.end(who, producer, Stage::Stopped);
            return;
        }
        if ours {
            producer.base = name.next;
            producer.packed = producer.packed.max(name.next);
            self.acknowledge(producer.name, name.next);
        }
        let done = name.next == self.config.tgbs && (!self.config.finish || name.finished);
        if ours && done {
            self.end(who, producer, Stage::Done);
        } else {
            self.set(who, producer);
        }
    }

    /// The process takes everything below `next` for committed.
    fn acknowledge(&mut self, name: u8, next: u8) {
        let at = usize::from(name);
        self.state.acked[at] = self.state.acked[at].max(next);
        let committed = self.tables.facts(self.state.head).names[at].next;
        if next > committed {
            let detail = format!("p{name} was told {next} TGBs, the log has {committed}");
            self.breaks(Property::Acknowledged, detail);
        }
    }

    /// What a new record means for data and for what was acknowledged.
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

/// Whether an intent can never become valid.
fn is_dead(void: &Void) -> bool {
    match void {
        Void::WrongSeq { next, found, .. } => found < next,
        Void::WrongEpoch { current, found, .. } => found <= current,
        Void::Finished(_) | Void::Retired { .. } => true,
        _ => false,
    }
}
