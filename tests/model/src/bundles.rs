//! A separate small model: readers that take several records from one copy, a bundle, instead of each from the log.
//!
//! A record is its writer and, through the chain of hashes, all records before it. A root may have been removed and
//! made again, so that a bundle of the former stream lies under the key of a new one. The rules under test:
//! - a bundle is written from folded records only, by the writer of the last of them, which replaces another one that
//!   it finds there;
//! - a reader takes a bundle only of its own stream, undamaged, that continues what it has folded without a gap;
//! - then it compares the bundle's last record with the log, and takes nothing if that is missing or another one;
//! - a reader that gets no bundle reads the log itself, and looks for repairs below its head.
//!
//! Bundles are deleted, damaged and refused at any time. A forger stores bundles of any fork under any number and
//! plants records ahead of the log's end; the log may be set back to an earlier state at any time (`forger`).

mod forger;
mod reader;

use crate::checker::{Rest, System};
use crate::property::{Broken, Property};

/// Most versions of a run.
const VERSIONS: usize = 4;
/// Most writers of a run; the process after them only reads.
const WRITERS: usize = 2;
/// The process that only reads.
const READER: usize = WRITERS;
/// Records in a bundle.
const WINDOW: usize = 2;
/// The writer of the records of the former stream.
const FORMER: u8 = 7;
/// The writer of damaged records, as a reader that checks nothing sees them.
const DAMAGED: u8 = 8;
/// The writer of a fork's records.
const FORGER: u8 = 9;
/// A record that a repair made void.
const VOID: u8 = 10;

/// A rule that can be removed, to show that the model needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A reader does not compare a bundle with what it has folded.
    NoChain,
    /// A reader takes records although some between its own and them are missing.
    SkipGap,
    /// A reader does not check a bundle's digest.
    NoDigest,
    /// A reader without a bundle waits for one.
    NoFallback,
    /// A reader compares no record of a bundle with the log.
    NoAnchor,
    /// A reader compares the first record of a bundle instead of the last.
    AnchorFirst,
    /// A reader asks only whether the log has a record of the last one's version.
    AnchorExists,
    /// A reader takes a missing last record for one that is not there yet.
    AnchorNotYet,
    /// A reader reads the last record before the bundle.
    AnchorEarly,
    /// A writer leaves another bundle that it finds under the number of its record.
    LeaveForeign,
    /// A reader does not look for repairs below its head.
    NoRepairs,
}

/// The rules and bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Bundles {
    pub mistake: Option<Mistake>,
    /// Versions of the log, at most `VERSIONS`.
    pub versions: usize,
    /// Processes that write, at most `WRITERS`.
    pub writers: usize,
    /// Whether puts may have unknown outcomes, and bundles be damaged and refused.
    pub faults: bool,
    /// Bundles that the forger may store.
    pub forged: u8,
    /// Records that the forger may plant ahead of the log's end.
    pub planted: u8,
    /// How many times the log may be set back.
    pub set_backs: u8,
}

/// The writers of the records from version 0 on, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Records {
    writers: [u8; VERSIONS],
    count: u8,
}

impl Records {
    fn len(self) -> usize {
        usize::from(self.count)
    }

    fn with(mut self, writer: u8) -> Self {
        self.writers[self.len()] = writer;
        self.count += 1;
        self
    }

    fn first(mut self, count: usize) -> Self {
        let count = count.min(self.len());
        self.writers[count..].fill(0);
        self.count = count as u8;
        self
    }

    fn begins(self, other: Self) -> bool {
        other.first(self.len()) == self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Process {
    folded: Records,
    /// Its put at its next version has an unknown outcome.
    in_doubt: bool,
    /// The log was set back below what it has folded; only a new start helps.
    lost: bool,
    /// Reads of the reader that are not used yet.
    held: Held,
}

/// The reads that a reader makes before it takes a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Held {
    #[default]
    Nothing,
    /// A bundle, whose last record is still to be compared.
    Bundle(Bundle),
    /// The log up to a record that was read before its bundle.
    Anchor(Records),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Bundle {
    /// All records up to its last one; the reader sees the last `WINDOW`, and the chain stands for those before.
    records: Records,
    intact: bool,
}

/// A state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Moment {
    log: Records,
    /// The record that lies beyond the log's end, or that a repair made void there, with the history that it names.
    ahead: Option<Records>,
    /// By the number of records up to the last one of each.
    bundles: [Option<Bundle>; VERSIONS + 1],
    processes: [Process; WRITERS + 1],
    /// No writer may store bundles any more.
    refused: bool,
    /// Bundles that the forger has stored.
    forged: u8,
    /// Records that the forger has planted.
    planted: u8,
    /// Times that the log was set back.
    set_backs: u8,
}

/// An event that may change the state, if it is possible.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// A writer puts a record: created, or the outcome is unknown and the record landed or did not.
    Put(usize, Outcome),
    /// A writer in doubt puts the same record again and learns which is there.
    Resolve(usize),
    /// A writer stores a bundle up to its newest record.
    Store(usize),
    /// A process reads its next record.
    Read(usize),
    /// The reader reads the bundle of this many records.
    ReadBundle(usize),
    /// The reader compares a bundle with the log, and takes or drops it.
    Compare,
    /// The reader reads the last record of a bundle before the bundle.
    ReadEarly(usize),
    /// The reader looks for repairs below its head.
    Look,
    /// A process begins anew from the log.
    Restart(usize),
    /// A bundle is damaged in the store.
    Damage(usize),
    /// A bundle is deleted.
    Delete(usize),
    /// The store refuses bundles from now on.
    Refuse,
    /// The forger stores a bundle of this many records, of a fork that begins after the first records of the log, as many as the second number.
    Forge(usize, usize),
    /// The forger plants the last record of such a fork.
    Plant(usize, usize),
    /// The log ends after this many records from now on.
    SetBack(usize),
    /// A person makes the record void at which the log stops.
    Repair,
}

/// The outcome of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Created,
    UnknownLanded,
    UnknownLost,
}

impl Bundles {
    fn without(self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The writer of a record by process `p`: its records before and after the log was set back differ.
    fn writer(m: &Moment, p: usize) -> u8 {
        p as u8 + 1 + WRITERS as u8 * m.set_backs
    }

    fn put(self, m: &mut Moment, p: usize, outcome: Outcome) -> Option<()> {
        let process = m.processes[p];
        let unknown = outcome != Outcome::Created;
        if process.in_doubt || process.folded.len() == self.versions || (unknown && !self.faults) {
            return None;
        }
        let record = process.folded.with(Self::writer(m, p));
        if process.lost {
            // This writer did not notice that the log was set back, so its next record lies beyond the log's end.
            let beyond = m.ahead.is_none() && process.folded.len() >= m.log.len() && !unknown;
            m.ahead = beyond.then_some(record);
            m.processes[p].folded = m.ahead?;
            return Some(());
        }
        let free = process.folded == m.log && !m.is_stopped();
        if free && outcome != Outcome::UnknownLost {
            m.log = record;
        }
        if unknown {
            m.processes[p].in_doubt = true;
        } else {
            m.processes[p].folded = free.then_some(record)?;
        }
        Some(())
    }

    fn resolve(m: &mut Moment, p: usize) -> Option<()> {
        let Process { folded, lost, .. } = m.processes[p];
        if !m.processes[p].in_doubt || lost || (folded == m.log && m.is_stopped()) {
            return None;
        }
        if folded == m.log {
            m.log = folded.with(Self::writer(m, p));
        }
        m.processes[p].folded = m.log.first(folded.len() + 1);
        m.processes[p].in_doubt = false;
        Some(())
    }

    #[allow(
        clippy::option_option,
        reason = "no such step, or a step that may break a property"
    )]
    fn store(self, m: &mut Moment, p: usize) -> Option<Option<Broken>> {
        let records = m.processes[p].folded;
        let own = records.len() > 0 && records.writers[records.len() - 1] == Self::writer(m, p);
        let ours = Bundle {
            records,
            intact: true,
        };
        let place = &mut m.bundles[records.len()];
        let left = place.is_some() && self.without(Mistake::LeaveForeign);
        if m.refused || !own || *place == Some(ours) {
            return None;
        }
        if !left {
            *place = Some(ours);
        }
        let detail = format!("another bundle than {records:?} stays under its number");
        Some(left.then(|| Broken::new(Property::KeptOut, detail)))
    }

    /// A process that the log was not set back under has folded a prefix of it, or ends at a planted record.
    fn check(m: &Moment) -> Option<Broken> {
        let wrong = m.processes.iter().find(|p| {
            let astray = m.ahead == Some(p.folded);
            !p.lost && !astray && !p.folded.begins(m.log)
        })?;
        let detail = format!("a process has folded {:?}, the log is {:?}", wrong, m.log);
        Some(Broken::new(Property::Fold, detail))
    }
}

impl System for Bundles {
    type State = Moment;
    type Action = Step;

    fn first(&mut self) -> Moment {
        let former = Records::default().with(FORMER).with(FORMER);
        let mut m = Moment::default();
        m.bundles[2] = Some(Bundle {
            records: former,
            intact: true,
        });
        m
    }

    fn actions(&self, _: &Moment, into: &mut Vec<Step>) {
        for p in (0..self.writers).chain([READER]) {
            into.extend([Step::Read(p), Step::Restart(p)]);
            if p != READER {
                let outcomes = [
                    Outcome::Created,
                    Outcome::UnknownLanded,
                    Outcome::UnknownLost,
                ];
                into.extend(outcomes.map(|outcome| Step::Put(p, outcome)));
                into.extend([Step::Resolve(p), Step::Store(p)]);
            }
        }
        for count in 1..=self.versions {
            into.extend([Step::ReadBundle(count), Step::ReadEarly(count)]);
            into.extend([Step::Damage(count), Step::Delete(count)]);
            into.extend((0..count).map(|base| Step::Forge(count, base)));
            into.extend((0..count).map(|base| Step::Plant(count, base)));
        }
        into.extend((0..self.versions).map(Step::SetBack));
        into.extend([Step::Compare, Step::Look, Step::Refuse, Step::Repair]);
    }

    fn next(&mut self, before: &Moment, step: Step) -> Option<(Moment, Option<Broken>)> {
        let mut m = *before;
        let mut broken = None;
        match step {
            Step::Put(p, outcome) => self.put(&mut m, p, outcome)?,
            Step::Resolve(p) => Self::resolve(&mut m, p)?,
            Step::Store(p) => broken = self.store(&mut m, p)?,
            Step::Read(p) => self.read(&mut m, p)?,
            Step::ReadBundle(count) => broken = self.read_bundle(&mut m, count)?,
            Step::Compare => broken = self.compare(&mut m)?,
            Step::ReadEarly(count) => self.read_early(&mut m, count)?,
            Step::Look => self.look(&mut m)?,
            Step::Restart(p) => Self::restart(&mut m, p)?,
            Step::Damage(_) | Step::Refuse if !self.faults => return None,
            Step::Damage(count) => {
                let bundle = m.bundles[count].as_mut().filter(|b| b.intact)?;
                bundle.intact = false;
            }
            Step::Delete(count) => {
                m.bundles[count].take()?;
            }
            Step::Refuse if m.refused => return None,
            Step::Refuse => m.refused = true,
            Step::Forge(count, base) => self.forge(&mut m, count, base)?,
            Step::Plant(count, base) => self.plant(&mut m, count, base)?,
            Step::SetBack(count) => self.set_back(&mut m, count)?,
            Step::Repair => Self::repair(&mut m)?,
        }
        let broken = broken.or_else(|| Self::check(&m));
        Some((m, broken))
    }

    fn at_rest(&self, m: &Moment) -> Rest {
        let whole = m.log.len() == self.versions;
        let mut processes = m.processes[..self.writers]
            .iter()
            .chain([&m.processes[READER]]);
        if whole && processes.all(|p| p.folded == m.log) {
            Rest::Complete
        } else {
            Rest::Wanting
        }
    }

    fn describe(&self, _: &Moment, step: Step) -> String {
        format!("{step:?}")
    }
}

#[cfg(test)]
mod tests;
