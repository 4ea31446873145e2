//! The proof of one leg of a lineage: every step went to every data coordinate exactly once, in order, with
//! the bytes that the log names.
//!
//! Ledgers are added in the order of their first steps, and steps before them are settled, so that a run of
//! any length is proved in the memory of a few objects. The digest alone identifies a step's bytes: the
//! data may be deleted.
//!
//! Missing ledgers are holes and contradict nothing; what follows them is checked all the same.

mod explain;
mod holes;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::contradiction::Contradiction;
use super::ledger::{LEDGER_STEPS, Ledger, LedgerEntry};
use super::lineage::{AttemptRecord, Leg};
use crate::ids::{Step, Version};
use crate::mesh;
use crate::tgb::Digest;
use holes::Holes;
pub use holes::LedgerHole;
use walk::ReaderState;

/// Steps that ranks of an attempt that was cut short, or still runs, may be apart by their ledgers.
const TAIL_STEPS: u64 = 2 * LEDGER_STEPS;

/// A step's TGB in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedTgb {
    /// The digest of the TGB.
    pub digest: Digest,
    /// The version that committed it.
    pub version: Version,
}

/// Looks up a step in the log; `None` beyond its head.
pub type Lookup<'l> = &'l (dyn Fn(Step) -> Option<LoggedTgb> + Sync);

/// The proof of one leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenLeg {
    /// The leg; its end is known now.
    pub leg: Leg,
    /// The first step that is not proved, or the start of the next leg.
    pub end: Step,
    /// Steps without ledgers, the lowest first.
    pub holes: Vec<LedgerHole>,
    pub dp_size: u32,
    /// Steps that went to all coordinates.
    pub steps: u64,
    /// Quarantined steps that were skipped.
    pub skipped: u64,
    /// Steps, counted per rank, that were received again after a rank returned.
    pub again: u64,
    /// Steps, counted per rank, in a later entry of a rank that returned. Some are from the store's index,
    /// since the daemon that delivered them crashed.
    pub recorded_again: u64,
    /// Steps, counted per rank, after the leg's end: trained and discarded.
    pub thrown_away: u64,
    /// Positions of coordinates that received more than was proved; only in a newest attempt.
    pub tail: Vec<(u32, Step)>,
    /// Coordinates whose ledgers end before their progress or marks; only in a newest attempt.
    pub unproved: Vec<Unproved>,
}

/// A coordinate that received more steps than its ledgers cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unproved {
    pub dp_rank: u32,
    /// The end of its ledgers; the leg's start without ledgers.
    pub ledgers: Step,
    /// Its position by progress or marks.
    pub reached: Step,
}

/// The coordinates that lack a step.
enum Lacking {
    /// All of this number of coordinates.
    All(u32),
    Some(Vec<u32>),
}

impl Lacking {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Some(none) if none.is_empty())
    }

    fn any(&self, is: impl FnMut(u32) -> bool) -> bool {
        match self {
            Self::All(count) => (0..*count).any(is),
            Self::Some(some) => some.iter().copied().any(is),
        }
    }

    fn for_each(self, act: impl FnMut(u32)) {
        match self {
            Self::All(count) => (0..count).for_each(act),
            Self::Some(some) => some.into_iter().for_each(act),
        }
    }
}

struct Claim {
    key: Arc<str>,
    entry: LedgerEntry,
}

/// The proof of a leg while its ledgers are read.
pub struct LegProof<'a> {
    attempt: &'a AttemptRecord,
    leg: Leg,
    slices: u32,
    /// Entries that are not checked yet: by first step, those with `resumed` last.
    pending: BTreeMap<(Step, bool, u64), Claim>,
    serial: u64,
    /// The state of each reader.
    readers: BTreeMap<(u32, Option<u32>), ReaderState>,
    /// Checksums by slice, of steps that are not settled.
    open: BTreeMap<Step, Vec<Option<u32>>>,
    settled: Step,
    holes: Holes,
    /// The position of each coordinate by its progress and marks.
    positions: BTreeMap<u32, Step>,
    proven: ProvenLeg,
}

impl<'a> LegProof<'a> {
    /// Begins the proof of `leg` of `attempt`, in a stream with `slices` slices per step.
    pub fn new(attempt: &'a AttemptRecord, leg: Leg, slices: u32) -> Self {
        Self {
            attempt,
            leg,
            slices,
            pending: BTreeMap::new(),
            serial: 0,
            readers: BTreeMap::new(),
            open: BTreeMap::new(),
            settled: leg.from,
            holes: Holes::default(),
            positions: BTreeMap::new(),
            proven: ProvenLeg {
                leg,
                end: leg.from,
                holes: Vec::new(),
                dp_size: attempt.state.dp_size,
                steps: 0,
                skipped: 0,
                again: 0,
                recorded_again: 0,
                thrown_away: 0,
                tail: Vec::new(),
                unproved: Vec::new(),
            },
        }
    }

    /// Adds a ledger of this attempt. Ledgers must be added in the order of their first steps.
    pub fn add(&mut self, key: &str, ledger: Ledger) -> Result<(), Contradiction> {
        let state = &self.attempt.state;
        if ledger.id != state.id {
            return Err(Contradiction::OtherId {
                key: key.to_owned(),
                found: ledger.id,
                expected: state.id,
            });
        }
        let key: Arc<str> = key.into();
        for entry in ledger.entries {
            let own = mesh::slices_of(self.slices, state.dp_size, entry.dp_rank);
            if own != Ok(entry.slice_range()) {
                return Err(Contradiction::OtherMesh {
                    key: key.to_string(),
                    attempt: state.number,
                    dp_size: state.dp_size,
                    dp_rank: entry.dp_rank,
                    first_slice: entry.first_slice,
                    slices: entry.slices,
                });
            }
            let place = (entry.from, entry.resumed, self.serial);
            self.serial += 1;
            let key = Arc::clone(&key);
            self.pending.insert(place, Claim { key, entry });
        }
        Ok(())
    }

    /// Checks all entries of steps below `below`, the first step of the next ledger.
    pub fn settle(&mut self, below: Step, log: Lookup<'_>) -> Result<(), Contradiction> {
        while let Some(first) = self.pending.first_entry() {
            if first.key().0 >= below {
                break;
            }
            let claim = first.remove();
            self.walk(&claim, log)?;
        }
        let below = self.leg.to.map_or(below, |to| to.min(below));
        while self.settled < below {
            let step = self.settled;
            let lacking = self.lacking(step);
            if self.attempt.skips(step) {
                self.proven.skipped += 1;
            } else if lacking.is_empty() {
                self.check(step, log)?;
            } else if self.may_follow(step, &lacking, below) {
                return Ok(());
            } else {
                let steps = step..step + 1;
                let holes = &mut self.holes;
                lacking.for_each(|dp_rank| holes.add(dp_rank, steps.clone()));
                self.open.remove(&step);
            }
            self.settled = step + 1;
        }
        Ok(())
    }

    /// Notes progress or a mark of a coordinate of a newest attempt: it has received all steps below
    /// `step`.
    pub fn note_position(&mut self, dp_rank: u32, step: Step) {
        let highest = self.positions.entry(dp_rank).or_default();
        *highest = step.max(*highest);
    }

    /// Ends the leg. Once some coordinate has reached `even_from`, no coordinate may be behind another.
    pub fn finish(
        mut self,
        even_from: Option<Step>,
        log: Lookup<'_>,
    ) -> Result<ProvenLeg, Contradiction> {
        let end = self.leg.to.unwrap_or(0);
        let furthest = self.pending.values().map(|c| c.entry.to).max();
        let most = self.readers.values().map(|s| s.at).max().max(furthest);
        self.settle(end.max(most.unwrap_or(0)), log)?;
        if self.leg.to.is_none() {
            self.validate_tail(even_from);
        }
        self.proven.end = self.settled;
        self.proven.holes = self.holes.joined();
        if let Some(first) = self.proven.holes.first() {
            let (from, end) = (self.leg.from, first.steps.start);
            let skipped = self.attempt.skipped(from..end).into_iter();
            self.proven.skipped = skipped.map(|(first, end)| end - first).sum();
            self.proven.steps = (end - from).saturating_sub(self.proven.skipped);
            self.proven.end = end;
            self.proven.tail.clear();
        }
        Ok(self.proven)
    }

    fn check_skips(&self, key: &str, entry: &LedgerEntry) -> Result<(), Contradiction> {
        let expected = self.attempt.skipped(entry.from..entry.to);
        if entry.skipped == expected {
            return Ok(());
        }
        Err(Contradiction::Skips {
            key: key.to_owned(),
            attempt: self.attempt.state.number,
            dp_rank: entry.dp_rank,
            from: entry.from,
            to: entry.to,
            found: words(&entry.skipped),
            expected: words(&expected),
        })
    }

    /// Notes the checksums of a step; repeated checksums must be equal.
    fn claim(
        &mut self,
        key: &str,
        entry: &LedgerEntry,
        step: Step,
        crcs: &[u32],
    ) -> Result<(), Contradiction> {
        let slices = self.slices as usize;
        let known = self.open.entry(step).or_insert_with(|| vec![None; slices]);
        for (slice, &crc) in entry.slice_range().zip(crcs) {
            let Some(slot) = known.get_mut(slice as usize) else {
                continue;
            };
            let first = *slot.get_or_insert(crc);
            if first != crc {
                return Err(Contradiction::Disagree {
                    key: key.to_owned(),
                    attempt: self.attempt.state.number,
                    step,
                    slice,
                    first,
                    second: crc,
                });
            }
        }
        Ok(())
    }

    /// Returns the coordinates that did not receive `step`, by the entries so far.
    fn lacking(&self, step: Step) -> Lacking {
        let dp_size = self.attempt.state.dp_size;
        let Some(known) = self.open.get(&step) else {
            return Lacking::All(dp_size);
        };
        let each = (self.slices / dp_size.max(1)).max(1);
        let slices = (0..).zip(known).filter(|(_, crc)| crc.is_none());
        let mut some: Vec<u32> = slices.map(|(slice, _)| slice / each).collect();
        some.dedup();
        Lacking::Some(some)
    }

    /// Whether entries of coordinates that lack `step` may follow. Ranks of a newest attempt may be some steps apart.
    fn may_follow(&self, step: Step, lacking: &Lacking, below: Step) -> bool {
        if self.leg.to == Some(below) {
            return false;
        }
        let is_behind = |dp_rank| self.reached(dp_rank).is_none_or(|at| at <= step);
        let behind = lacking.any(is_behind);
        behind && (!self.open.contains_key(&step) || below - step <= TAIL_STEPS)
    }

    /// Returns the furthest position of a coordinate's readers.
    fn reached(&self, dp_rank: u32) -> Option<Step> {
        let own = self
            .readers
            .range((dp_rank, None)..=(dp_rank, Some(u32::MAX)));
        own.map(|(_, stand)| self.attempt.next_kept(stand.at)).max()
    }

    /// Ends the newest attempt at its slowest coordinate.
    fn validate_tail(&mut self, even_from: Option<Step>) {
        let all = 0..self.attempt.state.dp_size;
        let reached: Vec<_> = all.map(|c| (c, self.reached(c))).collect();
        for &(dp_rank, step) in &reached {
            let ledgers = step.unwrap_or(self.attempt.next_kept(self.leg.from));
            let shown = self.positions.get(&dp_rank).copied().unwrap_or_default();
            let shown = self.attempt.next_kept(shown);
            if shown > ledgers {
                self.proven.unproved.push(Unproved {
                    dp_rank,
                    ledgers,
                    reached: shown,
                });
            }
        }
        if !self.proven.unproved.is_empty() {
            return;
        }
        let Some(most) = reached.iter().filter_map(|(_, step)| *step).max() else {
            return;
        };
        let whole = even_from.is_some_and(|from| most >= from);
        for &(coordinate, step) in &reached {
            let behind = step.is_none_or(|step| step < most && whole);
            if behind {
                let from = step.unwrap_or(self.attempt.next_kept(self.leg.from));
                self.holes.add(coordinate, from..most);
            }
        }
        let proven = self.attempt.next_kept(self.settled);
        let further = reached.into_iter().filter_map(|(c, step)| Some((c, step?)));
        self.proven.tail = further.filter(|(_, step)| *step > proven).collect();
    }

    /// Compares the received checksums of a step with the digest in the log.
    fn check(&mut self, step: Step, log: Lookup<'_>) -> Result<(), Contradiction> {
        let known = self.open.remove(&step).unwrap_or_default();
        let mut crcs: Vec<u32> = known.into_iter().flatten().collect();
        let found = Digest::from_crcs(crcs.iter().copied());
        let Some(named) = log(step) else {
            return Ok(());
        };
        if found == named.digest {
            self.proven.steps += 1;
            return Ok(());
        }
        Err(Contradiction::Digest {
            attempt: self.attempt.state.number,
            step,
            version: named.version,
            found,
            expected: named.digest,
            why: explain::explain(&mut crcs, named.digest, found, step, log),
        })
    }
}

fn words(ranges: &[(Step, Step)]) -> String {
    let one = |(first, end): &(Step, Step)| format!("{first}..{}", end.saturating_sub(1));
    match ranges {
        [] => "none".to_owned(),
        some => some.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}
