//! The proof of one leg of a lineage: every step went to every data coordinate exactly once, in order, with
//! the bytes that the log names.
//!
//! Ledgers are added in the order of their first steps, and steps before them are settled, so that a run of
//! any length is proved in the memory of a few objects. The digest alone identifies a step's bytes: the
//! data may be deleted.

mod explain;
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
            positions: BTreeMap::new(),
            proven: ProvenLeg {
                leg,
                end: leg.from,
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
            if self.attempt.skips(step) {
                self.proven.skipped += 1;
            } else if let Some(lacking) = self.lacking(step) {
                return self.lacks(step, lacking, below);
            } else {
                self.check(step, log)?;
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
            self.validate_tail(even_from)?;
        }
        self.proven.end = self.settled;
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

    /// Returns the first coordinate that did not receive `step`.
    fn lacking(&self, step: Step) -> Option<u32> {
        let Some(known) = self.open.get(&step) else {
            return Some(0);
        };
        let slice = known.iter().position(Option::is_none)?;
        let each = (self.slices / self.attempt.state.dp_size.max(1)).max(1);
        Some(slice as u32 / each)
    }

    /// Handles a step that a coordinate did not receive although all entries up to it are known. Where more
    /// entries follow, they will show a gap; otherwise the coordinate's ledgers end here. Ranks of a newest
    /// attempt may be some steps apart.
    fn lacks(&self, step: Step, dp_rank: u32, below: Step) -> Result<(), Contradiction> {
        let last = self.leg.to == Some(below);
        match (self.open.contains_key(&step), self.leg.to) {
            (false, Some(to)) if last => Err(Contradiction::NeverReached {
                attempt: self.attempt.state.number,
                to,
                step,
            }),
            (false, _) => Ok(()),
            (true, _) if !last && below - step <= TAIL_STEPS => Ok(()),
            (true, _) => Err(self.behind(dp_rank, step)),
        }
    }

    fn behind(&self, dp_rank: u32, needed: Step) -> Contradiction {
        let state = &self.attempt.state;
        match self.reached(dp_rank) {
            None => Contradiction::MissingCoordinate {
                attempt: state.number,
                dp_rank,
                dp_size: state.dp_size,
                from: self.leg.from,
            },
            Some(reached) => Contradiction::Behind {
                attempt: state.number,
                dp_rank,
                reached,
                needed,
            },
        }
    }

    /// Returns the furthest position of a coordinate's readers.
    fn reached(&self, dp_rank: u32) -> Option<Step> {
        let own = self
            .readers
            .range((dp_rank, None)..=(dp_rank, Some(u32::MAX)));
        own.map(|(_, stand)| self.attempt.next_kept(stand.at)).max()
    }

    /// Ends the newest attempt at its slowest coordinate.
    fn validate_tail(&mut self, even_from: Option<Step>) -> Result<(), Contradiction> {
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
            return Ok(());
        }
        let Some(most) = reached.iter().filter_map(|(_, step)| *step).max() else {
            return Ok(());
        };
        let whole = even_from.is_some_and(|from| most >= from);
        for &(coordinate, step) in &reached {
            let behind = step.is_none_or(|step| step < most && whole);
            if behind {
                return Err(self.behind(coordinate, step.unwrap_or(self.leg.from)));
            }
        }
        let proven = self.attempt.next_kept(self.settled);
        let further = reached.into_iter().filter_map(|(c, step)| Some((c, step?)));
        self.proven.tail = further.filter(|(_, step)| *step > proven).collect();
        Ok(())
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
