//! A separate small model: readers that take several records from one copy, a bundle, instead of each from the log.
//!
//! A record is its writer and, through the chain of hashes, all records before it. A root may have been removed and
//! made again, so that a bundle of the former stream lies under the key of a new one. The rules under test:
//! - a bundle is written from folded records only, never from a put whose outcome is unknown;
//! - a reader takes a bundle only of its own stream, undamaged, that continues what it has folded without a gap;
//! - a reader that gets no bundle reads the log itself.
//!
//! Bundles are deleted, damaged and refused at any time.

use crate::checker::{Rest, System};
use crate::property::{Broken, Property};

/// Versions of a run.
const VERSIONS: usize = 4;
/// Writers of a run; the process after them only reads.
const WRITERS: usize = 2;
/// The process that only reads.
const READER: usize = WRITERS;
/// Records in a bundle.
const WINDOW: usize = 2;
/// The writer of the records of the former stream.
const FORMER: u8 = 7;

/// A rule that can be removed, to show that the model needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A writer bundles its own record while the outcome of its put is unknown.
    BundleUnknown,
    /// A reader does not compare a bundle with what it has folded.
    NoChain,
    /// A reader takes records although some between its own and them are missing.
    SkipGap,
    /// A reader does not check a bundle's digest.
    NoDigest,
    /// A reader without a bundle waits for one.
    NoFallback,
}

/// The rules of a run.
#[derive(Debug, Clone, Copy)]
pub struct Bundles {
    pub mistake: Option<Mistake>,
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
        self.writers[count..].fill(0);
        self.count = count as u8;
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Process {
    folded: Records,
    /// Its put at its next version has an unknown outcome.
    in_doubt: bool,
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
    /// By the number of records up to the last one of each.
    bundles: [Option<Bundle>; VERSIONS + 1],
    processes: [Process; WRITERS + 1],
    /// No writer may store bundles any more.
    refused: bool,
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
    /// A process reads the bundle of this many records.
    ReadBundle(usize, usize),
    /// A bundle is damaged in the store.
    Damage(usize),
    /// A bundle is deleted.
    Delete(usize),
    /// The store refuses bundles from now on.
    Refuse,
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

    fn put(m: &mut Moment, p: usize, outcome: Outcome) -> Option<()> {
        let process = m.processes[p];
        if process.in_doubt || process.folded.len() == VERSIONS {
            return None;
        }
        let free = process.folded == m.log;
        let record = process.folded.with(p as u8 + 1);
        if free && outcome != Outcome::UnknownLost {
            m.log = record;
        }
        if outcome == Outcome::Created {
            m.processes[p].folded = free.then_some(record)?;
        } else {
            m.processes[p].in_doubt = true;
        }
        Some(())
    }

    fn resolve(m: &mut Moment, p: usize) -> Option<()> {
        let Process { folded, in_doubt } = m.processes[p];
        if !in_doubt {
            return None;
        }
        if folded == m.log {
            m.log = folded.with(p as u8 + 1);
        }
        m.processes[p] = Process {
            folded: m.log.first(folded.len() + 1),
            in_doubt: false,
        };
        Some(())
    }

    fn store(self, m: &mut Moment, p: usize) -> Option<()> {
        let Process { folded, in_doubt } = m.processes[p];
        let records = if in_doubt && self.without(Mistake::BundleUnknown) {
            folded.with(p as u8 + 1)
        } else {
            folded
        };
        let place = &mut m.bundles[records.len()];
        if m.refused || records.len() == 0 || place.is_some() {
            return None;
        }
        *place = Some(Bundle {
            records,
            intact: true,
        });
        Some(())
    }

    fn read(self, m: &mut Moment, p: usize) -> Option<()> {
        let Process { folded, in_doubt } = m.processes[p];
        if in_doubt || (p == READER && self.without(Mistake::NoFallback)) {
            return None;
        }
        if folded.len() >= m.log.len() {
            return None;
        }
        m.processes[p].folded = m.log.first(folded.len() + 1);
        Some(())
    }

    fn read_bundle(self, m: &mut Moment, p: usize, count: usize) -> Option<()> {
        let Process { folded, in_doubt } = m.processes[p];
        let bundle = m.bundles[count].filter(|_| !in_doubt && count > folded.len())?;
        let first = count.saturating_sub(WINDOW);
        let gap = first > folded.len() && !self.without(Mistake::SkipGap);
        let damaged = !bundle.intact && !self.without(Mistake::NoDigest);
        // The first record continues stream.json, so that a former stream's differs from the beginning.
        let former = bundle.records.writers[0] == FORMER;
        let other = former || bundle.records.first(folded.len()) != folded;
        if gap || damaged || (other && !self.without(Mistake::NoChain)) {
            return None;
        }
        // Without the chain the reader appends what it sees to what it has.
        let mut taken = folded;
        if self.without(Mistake::SkipGap) {
            taken.count = taken.count.max(first as u8);
        }
        for at in taken.len()..count {
            let writer = bundle.records.writers[at];
            taken = taken.with(if bundle.intact { writer } else { FORMER + 1 });
        }
        m.processes[p].folded = taken;
        Some(())
    }

    fn check(m: &Moment) -> Option<Broken> {
        let wrong = m.processes.iter().find(|p| {
            let known = p.folded.len();
            known > m.log.len() || m.log.first(known) != p.folded
        })?;
        let detail = format!("a process has folded {:?}, the log is {:?}", wrong, m.log);
        Some(Broken::new(Property::Fold, detail))
    }
}

impl System for Bundles {
    type State = Moment;
    type Action = Step;

    fn first(&mut self) -> Moment {
        let former = Records {
            writers: [FORMER, FORMER, 0, 0],
            count: 2,
        };
        let mut m = Moment::default();
        m.bundles[2] = Some(Bundle {
            records: former,
            intact: true,
        });
        m
    }

    fn actions(&self, _: &Moment, into: &mut Vec<Step>) {
        for p in 0..=WRITERS {
            if p != READER {
                let outcomes = [
                    Outcome::Created,
                    Outcome::UnknownLanded,
                    Outcome::UnknownLost,
                ];
                into.extend(outcomes.map(|outcome| Step::Put(p, outcome)));
                into.extend([Step::Resolve(p), Step::Store(p)]);
            }
            into.push(Step::Read(p));
            into.extend((1..=VERSIONS).map(|count| Step::ReadBundle(p, count)));
        }
        into.extend((1..=VERSIONS).flat_map(|count| [Step::Damage(count), Step::Delete(count)]));
        into.push(Step::Refuse);
    }

    fn next(&mut self, before: &Moment, step: Step) -> Option<(Moment, Option<Broken>)> {
        let mut m = *before;
        match step {
            Step::Put(p, outcome) => Self::put(&mut m, p, outcome)?,
            Step::Resolve(p) => Self::resolve(&mut m, p)?,
            Step::Store(p) => self.store(&mut m, p)?,
            Step::Read(p) => self.read(&mut m, p)?,
            Step::ReadBundle(p, count) => self.read_bundle(&mut m, p, count)?,
            Step::Damage(count) => {
                let bundle = m.bundles[count].as_mut().filter(|b| b.intact)?;
                bundle.intact = false;
            }
            Step::Delete(count) => {
                m.bundles[count].take()?;
            }
            Step::Refuse if m.refused => return None,
            Step::Refuse => m.refused = true,
        }
        let broken = Self::check(&m);
        Some((m, broken))
    }

    fn at_rest(&self, m: &Moment) -> Rest {
        let whole = m.log.len() == VERSIONS;
        if whole && m.processes.iter().all(|p| p.folded == m.log) {
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
