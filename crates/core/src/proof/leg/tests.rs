//! An honest run with restarts and changing worlds is accepted; each kind of forgery is recognized.

mod returns;

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::ids::{AttemptId, AttemptNo, StreamId};
use crate::manifest::entry::Parent;
use crate::manifest::state::AttemptState;
use crate::proof::lineage::JobRecord;

const SLICES: u32 = 8;
const STEPS: Step = 3000;

/// The log: slice checksums are a function of step and slice.
fn crc(step: Step, slice: u32) -> u32 {
    crate::crc::crc32c(format!("{step}/{slice}").as_bytes())
}

fn named(step: Step) -> Option<LoggedTgb> {
    let digest = Digest::from_crcs((0..SLICES).map(|slice| crc(step, slice)));
    let version = step / 10;
    (step < STEPS).then_some(LoggedTgb { digest, version })
}

/// A job, and its ledgers by attempt, in order of their first steps.
struct Run {
    job: JobRecord,
    ledgers: BTreeMap<AttemptNo, Vec<Ledger>>,
}

impl Run {
    fn new() -> Self {
        let job = JobRecord {
            name: "llm".parse().unwrap(),
            opened: 5,
            start: 0,
            closed: None,
            attempts: Vec::new(),
        };
        Self {
            job,
            ledgers: BTreeMap::new(),
        }
    }

    /// An attempt of `dp_size` coordinates that starts at `start`; it trains up to `end`.
    fn attempt(&mut self, start: Step, dp_size: u32, end: Step, skips: &[(Step, Step)]) {
        let number = self.job.attempts.len() as u64;
        let parent = number.checked_sub(1);
        let state = AttemptState {
            number,
            id: AttemptId([number as u8; 16]),
            opened: 6 + number,
            parent: parent.map(|attempt| Parent {
                attempt,
                step: start,
            }),
            start,
            dp_size,
            mesh: Vec::new(),
            head: None,
        };
        let skips: Vec<_> = skips.iter().map(|(a, b)| *a..*b).collect();
        self.job.attempts.push(AttemptRecord::new(state, skips));
        self.ledgers.insert(number, Vec::new());
        let mut from = start;
        while from < end {
            let to = (from + LEDGER_STEPS).min(end);
            for node in 0..dp_size.div_ceil(2) {
                let ranks = node * 2..(node * 2 + 2).min(dp_size);
                let entries = ranks.map(|c| self.entry(number, c, from, to)).collect();
                self.push(number, node, entries);
            }
            from = to;
        }
    }

    fn entry(&self, attempt: AttemptNo, dp_rank: u32, from: Step, to: Step) -> LedgerEntry {
        let record = self.job.attempt(attempt).unwrap();
        let each = SLICES / record.state.dp_size;
        let own = dp_rank * each..(dp_rank + 1) * each;
        let kept = (from..to).filter(|step| !record.skips(*step));
        LedgerEntry {
            dp_rank,
            rank: None,
            first_slice: dp_rank * each,
            slices: each,
            from,
            to,
            resumed: false,
            crcs: kept
                .flat_map(|step| own.clone().map(move |slice| crc(step, slice)))
                .collect(),
            skipped: record.skipped(from..to),
        }
    }

    fn push(&mut self, attempt: AttemptNo, node: u32, entries: Vec<LedgerEntry>) {
        let id = self.job.attempt(attempt).unwrap().state.id;
        let ledger = Ledger {
            format: 1,
            stream: StreamId::from_random([7; 16]),
            job: self.job.name.clone(),
            opened: self.job.opened,
            attempt,
            id,
            node: format!("{node}"),
            entries,
            told: Vec::new(),
            states: Vec::new(),
        };
        let all = self.ledgers.get_mut(&attempt).unwrap();
        all.push(ledger);
        all.sort_by_key(Ledger::first);
    }

    /// The entries of one coordinate.
    fn of(&mut self, attempt: AttemptNo, dp_rank: u32) -> impl Iterator<Item = &mut LedgerEntry> {
        let ledgers = self.ledgers.get_mut(&attempt).unwrap().iter_mut();
        let entries = ledgers.flat_map(|l| l.entries.iter_mut());
        entries.filter(move |e| e.dp_rank == dp_rank)
    }

    fn prove(&self, to: Option<Step>, whole: bool) -> Result<Vec<ProvenLeg>, Contradiction> {
        let mut legs = self.job.lineage()?;
        legs.retain(|leg| to.is_none_or(|to| leg.from < to));
        if let (Some(last), Some(to)) = (legs.last_mut(), to) {
            last.to = Some(last.to.map_or(to, |end| end.min(to)));
        }
        legs.into_iter()
            .map(|leg| self.prove_leg(leg, whole))
            .collect()
    }

    fn prove_leg(&self, leg: Leg, whole: bool) -> Result<ProvenLeg, Contradiction> {
        let mut proof = LegProof::new(self.job.attempt(leg.attempt).unwrap(), leg, SLICES);
        let ledgers = &self.ledgers[&leg.attempt];
        for (n, ledger) in ledgers.iter().enumerate() {
            proof.add(&format!("ledger-{n}"), ledger.clone())?;
            if let Some(next) = ledgers.get(n + 1) {
                proof.settle(next.first(), &named)?;
            }
        }
        proof.note_position(0, leg.from);
        proof.finish(whole.then_some(0), &named)
    }

    /// The holes of a run without a contradiction: attempt, coordinate, steps.
    #[track_caller]
    fn holes(&self) -> Vec<(AttemptNo, u32, Range<Step>)> {
        let of = |leg: &ProvenLeg| {
            let number = leg.leg.attempt;
            let holes = leg.holes.clone().into_iter();
            holes.map(move |hole| (number, hole.dp_rank, hole.steps))
        };
        self.prove(None, true)
            .unwrap()
            .iter()
            .flat_map(of)
            .collect()
    }

    #[track_caller]
    fn fails(&self, says: &[&str]) {
        let error = self.prove(None, true).unwrap_err().to_string();
        for part in says {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }
}

/// Five restarts; 4 coordinates, then 2, then 4 again; attempt 2 is thrown away whole.
fn honest() -> Run {
    let mut run = Run::new();
    run.attempt(0, 4, 700, &[]);
    run.attempt(600, 2, 1100, &[(700, 710)]);
    run.attempt(1000, 2, 1040, &[(700, 710)]);
    run.attempt(1000, 4, 1500, &[(700, 710), (1200, 1300)]);
    run.attempt(1500, 8, 1777, &[]);
    run.attempt(1700, 4, 2100, &[(1750, 1760)]);
    run
}

#[test]
fn an_honest_run_with_restarts_and_other_worlds_is_accepted() {
    let proven = honest().prove(None, true).unwrap();
    let seen: Vec<_> = proven
        .iter()
        .map(|p| {
            (
                p.leg.attempt,
                p.leg.from,
                p.end,
                p.dp_size,
                p.steps,
                p.skipped,
            )
        })
        .collect();
    let expected = [
        (0, 0, 600, 4, 600, 0),
        (1, 600, 1000, 2, 390, 10),
        (2, 1000, 1000, 2, 0, 0),
        (3, 1000, 1500, 4, 400, 100),
        (4, 1500, 1700, 8, 200, 0),
        (5, 1700, 2100, 4, 390, 10),
    ];
    assert_eq!(seen, expected);
    assert_eq!(proven[0].thrown_away, 4 * 100);
    assert!(
        proven
            .iter()
            .all(|p| p.tail.is_empty() && p.again + p.recorded_again == 0)
    );
}

#[test]
fn a_swapped_slice_a_flipped_byte_and_another_batch_are_distinguished() {
    let mut run = honest();
    for rank in [0, 1] {
        let other = run.entry(1, 1 - rank, 600, 856).crcs[6..7].to_vec();
        let entry = run.of(1, rank).next().unwrap();
        entry.crcs[6] = other[0];
    }
    run.fails(&[
        "step 601",
        "log/00000000000000000060.json",
        "slices 2 and 6 are swapped",
    ]);
    let mut run = honest();
    run.of(3, 2).nth(1).unwrap().crcs[8] ^= 1;
    run.fails(&[
        "step 1304",
        "attempt 3",
        "at least one slice had other bytes",
    ]);
    let mut run = honest();
    for rank in 0..4 {
        let later = run.entry(0, rank, 301, 302).crcs;
        let entry = run.of(0, rank).nth(1).unwrap();
        let at = (300 - 256) * 2;
        entry.crcs[at..at + 2].copy_from_slice(&later);
    }
    run.fails(&["step 300", "it is the batch of step 301"]);
}

#[test]
fn a_doubled_step_is_found() {
    let mut run = honest();
    let again = run.entry(0, 3, 511, 600);
    run.push(0, 9, vec![again]);
    run.fails(&[
        "doubled step",
        "coordinate 3 of attempt 0",
        "step 511 again",
        "stood at step 512",
    ]);
}

#[test]
fn missing_ledgers_are_holes_and_contradict_nothing() {
    let without = |attempt, lost: &dyn Fn(&Ledger) -> bool| {
        let mut run = honest();
        let ledgers = run.ledgers.get_mut(&attempt).unwrap();
        ledgers.retain(|ledger| !lost(ledger));
        run.holes()
    };
    let each = |attempt, ranks: Range<u32>, steps: &[(Step, Step)]| -> Vec<_> {
        let holes = steps
            .iter()
            .flat_map(|&(from, to)| (ranks.clone()).map(move |rank| (attempt, rank, from..to)));
        holes.collect()
    };
    let lost = without(0, &|l| l.first() == 256 && l.node == "1");
    assert_eq!(lost, each(0, 2..4, &[(256, 512)]));
    let lost = without(0, &|l| l.first() == 256);
    assert_eq!(lost, each(0, 0..4, &[(256, 512)]));
    let lost = without(3, &|l| l.node == "1");
    assert_eq!(
        lost,
        each(3, 2..4, &[(1000, 1200), (1300, 1500)]),
        "quarantined between"
    );
    let lost = without(5, &|l| l.node == "1");
    assert_eq!(lost, each(5, 2..4, &[(1700, 2100)]));
    let lost = without(5, &|l| l.node == "1" && l.first() > 1700);
    assert_eq!(lost, each(5, 2..4, &[(1956, 2100)]));
    // The daemons of the parent stored nothing of the last steps, or nothing at all.
    let lost = without(1, &|l| l.first() >= 856);
    assert_eq!(lost, each(1, 0..2, &[(856, 1000)]));
    let lost = without(4, &|_| true);
    assert_eq!(lost, each(4, 0..8, &[(1500, 1700)]));
}

#[test]
fn what_is_behind_a_hole_is_not_proved_but_checked() {
    let mut run = honest();
    let ledgers = run.ledgers.get_mut(&0).unwrap();
    ledgers.retain(|l| l.first() != 256 || l.node != "1");
    let proven = run.prove(None, true).unwrap();
    assert_eq!((proven[0].end, proven[0].steps), (256, 256));
    assert_eq!((proven[1].end, proven[1].steps), (1000, 390));
    run.of(0, 0).nth(2).unwrap().crcs[0] ^= 1;
    run.fails(&["step 512", "at least one slice had other bytes"]);
}

#[test]
fn attempts_that_do_not_follow_one_another_are_found() {
    let mut run = honest();
    run.job.attempts[5].state.start = 1600;
    run.fails(&[
        "lineage",
        "attempt 5 starts at step 1600",
        "stands at step 1700",
    ]);
}

#[test]
fn edited_ledgers_are_found() {
    let mut run = honest();
    run.ledgers.get_mut(&1).unwrap()[0].id = AttemptId([9; 16]);
    run.fails(&["ledger-0 has the attempt id 0909", "as 0101"]);
    let mut run = honest();
    let other = run.ledgers[&4][0].entries.clone();
    run.ledgers.get_mut(&5).unwrap()[0].entries = other;
    run.fails(&[
        "slice 0 and 1 in all for coordinate 0",
        "attempt 5 with 4 coordinates",
    ]);
    let mut run = honest();
    let entry = run.of(3, 0).next().unwrap();
    entry.skipped.clear();
    run.fails(&[
        "quarantine",
        "passed over none of steps 1000 to 1256",
        "1200..1255 were quarantined",
    ]);
    let mut run = honest();
    run.attempt(2100, 4, STEPS + 10, &[]);
    run.fails(&["received step 3000, which the log does not have"]);
}

#[test]
fn steps_after_the_last_ledger_are_not_proved() {
    let run = honest();
    let leg = *run.job.lineage().unwrap().last().unwrap();
    let begin = || LegProof::new(run.job.attempt(5).unwrap(), leg, SLICES);
    let mut proof = begin();
    for ledger in run.ledgers[&5].iter().filter(|l| l.first() == 1700) {
        proof.add("ledger", ledger.clone()).unwrap();
    }
    for mark in [1800, 2000, 1900] {
        proof.note_position(1, mark);
    }
    proof.note_position(2, 1956);
    let proven = proof.finish(None, &named).unwrap();
    let unproved = Unproved {
        dp_rank: 1,
        ledgers: 1956,
        reached: 2000,
    };
    assert_eq!((proven.end, proven.unproved), (1956, vec![unproved]));
    // Without any ledger, nothing is proved of a run that has positions.
    let mut proof = begin();
    proof.note_position(3, 1701);
    let proven = proof.finish(None, &named).unwrap();
    assert_eq!((proven.end, proven.unproved.len()), (1700, 1));
    // A quarantined range ahead of the ledgers is not a missing step.
    let mut proof = begin();
    for rank in 0..4 {
        let entry = run.entry(5, rank, 1700, 1750);
        let ledger = Ledger {
            entries: vec![entry],
            ..run.ledgers[&5][0].clone()
        };
        proof.add("ledger", ledger).unwrap();
        proof.note_position(rank, 1760);
    }
    let proven = proof.finish(None, &named).unwrap();
    assert_eq!((proven.end, proven.unproved.len()), (1750, 0));
}

#[test]
fn two_ranks_of_one_coordinate_are_two_readers() {
    let mut run = honest();
    run.of(5, 1).for_each(|e| e.rank = Some(2));
    let mut second = run.entry(5, 1, 1700, 1800);
    second.rank = Some(3);
    run.push(5, 7, vec![second.clone()]);
    assert_eq!(run.prove(None, true).unwrap()[5].end, 2100);
    second.from = 1760;
    second.skipped.clear();
    second.crcs.drain(..100);
    run.ledgers.get_mut(&5).unwrap().retain(|l| l.node != "7");
    run.push(5, 7, vec![second]);
    assert_eq!(run.holes(), [(5, 1, 1700..1760)]);
}
