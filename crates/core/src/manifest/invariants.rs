//! The invariants of the state after every fold and in every snapshot.
//!
//! - I1 the open segment holds exactly the steps from its first to the head, in order;
//! - I2 the watermark is not above the head;
//! - I3 waiting TGBs exist under `lanes` only, and per lane end just before the next sequence;
//! - I4 under `lanes` the turn names a lane, and that lane has nothing waiting (unless sealed);
//! - I5 open producers have a term of at least 1 and lie before the head of the log, those of a fork's parent apart;
//! - I6 attempts of a job are numbered one after another, opened in the order of the log, and all but
//!   the newest have ended;
//! - I7 versions and steps, waiting ones included, stay below the numeric limit; so do all numbers that
//!   a fold or a reader continues from, and the sizes of meshes divide the stream's slices;
//! - I8 the state of names and turns equals what follows from producers and waiting TGBs;
//! - I9 repaired versions grow and lie before the head of the log, and so do those that opened jobs and
//!   attempts, and added or lifted quarantines.
//!
//! A fold checks them for the parts that its record touched; the rest is unchanged since the fold before. A
//! snapshot is checked as a whole, and so is every fold of a test.

use std::collections::BTreeSet;

use super::entry::Entry;
use super::folded::Folded;
use super::lanes::{Lanes, Queue};
use super::state::{JobState, Manifest, ProducerState};
use crate::ids::{JobName, ProducerName, Step};
use crate::limits::NUMBER_MAX;
use crate::stream::StreamOrder;

/// The first invariant that is broken, in words.
pub(super) fn check(m: &Manifest) -> Result<(), String> {
    check_numbers(m)?;
    check_open(m, m.first_open_step())?;
    check_turn(m)?;
    for (name, p) in &m.producers {
        check_producer(m, name, p)?;
    }
    for (name, queue) in m.lanes.queues() {
        check_queue(m, name, queue)?;
    }
    for (name, job) in m.jobs.iter() {
        check_job(name, job)?;
    }
    if !m.repaired.is_sorted() || m.repaired.last().is_some_and(|v| *v >= m.next_version) {
        return Err("I9: repaired versions are out of order".to_owned());
    }
    let jobs = m.jobs.values();
    let mut opened = jobs.flat_map(|job| job.attempts.iter().map(|a| a.opened).chain([job.opened]));
    let mut ranges = m
        .quarantine
        .iter()
        .flat_map(|q| [q.added, q.lifted.unwrap_or(0)]);
    if opened.any(|v| v >= m.next_version) || ranges.any(|v| v >= m.next_version) {
        return Err("I9: a job or a quarantine is of a version that is not written yet".to_owned());
    }
    check_lanes(m)
}

/// The same for what a record touched: `first` is the head before it.
pub(super) fn check_touched(m: &Manifest, folded: &Folded, first: Step) -> Result<(), String> {
    check_open(m, first.max(m.first_open_step()))?;
    check_turn(m)?;
    let (mut names, mut jobs) = (BTreeSet::new(), BTreeSet::new());
    for entry in folded.record.iter().flat_map(|r| &r.entries) {
        match entry {
            Entry::Opened(e) => drop(names.insert(&e.producer)),
            Entry::Batch(e) => drop(names.insert(&e.producer)),
            Entry::Finished(e) => drop(names.insert(&e.producer)),
            Entry::Retired(e) => drop(names.insert(&e.producer)),
            Entry::AttemptOpened(e) => drop(jobs.insert(&e.job)),
            _ => {}
        }
    }
    names.extend(folded.placed.iter().map(|placed| &placed.producer));
    for name in names {
        if let Some(p) = m.producers.get(name) {
            check_producer(m, name, p)?;
        }
        if let Some(queue) = m.lanes.queue(name) {
            check_queue(m, name, queue)?;
        }
    }
    for name in jobs {
        if let Some(job) = m.jobs.get(name) {
            check_job(name, job)?;
        }
    }
    Ok(())
}

/// Checks I7 for numbers that a fold only increments or takes after a check, since a snapshot may hold any value.
fn check_numbers(m: &Manifest) -> Result<(), String> {
    let counted = [m.void_entries, m.void_records, m.mixture.id, m.watermark];
    let producers = m
        .producers
        .iter()
        .flat_map(|(_, p)| [p.epoch, p.began, p.next_seq]);
    let jobs = m
        .jobs
        .values()
        .flat_map(|job| [job.opened, job.start, job.lease_seconds.unwrap_or(0)]);
    let attempts = || m.jobs.values().flat_map(|job| &job.attempts);
    let attempted = attempts().flat_map(|a| [a.number, a.start, a.head.unwrap_or(0)]);
    let skipped = m.quarantine.iter().flat_map(|q| [q.first, q.last]);
    let mut all = counted
        .into_iter()
        .chain(producers)
        .chain(jobs)
        .chain(attempted)
        .chain(skipped);
    if all.any(|number| number > NUMBER_MAX) {
        return Err("I7: its numbers are above the limit".to_owned());
    }
    let slices = m.stream.slices;
    match attempts().find(|a| a.dp_size == 0 || !slices.is_multiple_of(a.dp_size)) {
        Some(a) => Err(format!(
            "I7: dp_size {} does not divide {slices} slices",
            a.dp_size
        )),
        None => Ok(()),
    }
}

/// I1 from step `from` on, I2 and I7.
fn check_open(m: &Manifest, from: Step) -> Result<(), String> {
    let first = m.first_open_step();
    let steps = (from..m.next_step).all(|step| m.open_step(step).is_some_and(|s| s.step == step));
    if !steps || m.open_steps.len() as u64 != m.next_step - first {
        return Err(
            "I1: the open segment does not reach from its first step to the head".to_owned(),
        );
    }
    if m.next_version > NUMBER_MAX || m.next_step.saturating_add(m.waiting() as u64) > NUMBER_MAX {
        return Err("I7: its numbers are above the limit".to_owned());
    }
    let least = m.stream.first_step();
    if m.watermark < least || m.next_step < least {
        return Err(format!(
            "I2: the watermark or the head is below the fork at {least}"
        ));
    }
    if m.watermark > m.next_step {
        return Err(format!(
            "I2: watermark {} is above the head {}",
            m.watermark, m.next_step
        ));
    }
    Ok(())
}

fn check_turn(m: &Manifest) -> Result<(), String> {
    if m.stream.order == StreamOrder::Arrival {
        return match m.lanes.waiting() {
            0 => Ok(()),
            _ => Err("I3: TGBs wait for a turn under order = arrival".to_owned()),
        };
    }
    let (turn, since) = m.lanes.turn();
    let lane = m.stream.producers.get(turn as usize);
    let lane = lane.ok_or("I4: the turn names no lane")?;
    if since > m.next_version {
        return Err(format!("I4: the turn was given at version {since}, later"));
    }
    if !m.sealed && m.lanes.queue(lane).is_some() {
        return Err(format!(
            "I4: lane {lane} has its turn and TGBs, but no step"
        ));
    }
    Ok(())
}

/// Keys are distinct, so first, last and count leave no room for a gap.
fn check_queue(m: &Manifest, name: &ProducerName, queue: &Queue) -> Result<(), String> {
    let next = m.producers.get(name).map_or(0, |p| p.next_seq);
    let first = queue.first().map(|(seq, _)| *seq);
    let last = queue.last().map(|(seq, _)| *seq);
    let expected = next.checked_sub(queue.size() as u64);
    if first.is_none() || first != expected || last != next.checked_sub(1) {
        return Err(format!(
            "I3: what waits of lane {name} does not end at its next sequence"
        ));
    }
    Ok(())
}

fn check_producer(m: &Manifest, name: &ProducerName, p: &ProducerState) -> Result<(), String> {
    // A fork has its parent's producers before its first record.
    let inherited = m.stream.parent.is_some() && p.opened == 0;
    if p.epoch == 0 || (p.opened >= m.next_version && !inherited) {
        return Err(format!(
            "I5: producer {name} has term {} from version {}",
            p.epoch, p.opened
        ));
    }
    Ok(())
}

fn check_job(name: &JobName, job: &JobState) -> Result<(), String> {
    let numbers = job.attempts.iter().map(|a| a.number);
    let opened = job.attempts_opened();
    // `None` where they do not grow, which a snapshot may contain.
    let first = opened.checked_sub(job.attempts.len() as u64);
    let numbered = first.is_some_and(|first| numbers.eq(first..opened));
    let in_order = job.attempts.windows(2).all(|w| w[0].opened <= w[1].opened);
    let mut rest = job.attempts.iter().rev();
    let newest = rest.next();
    let ended = newest.is_none_or(|a| a.head.is_none()) && rest.all(|a| a.head.is_some());
    if numbered && in_order && ended {
        return Ok(());
    }
    Err(format!("I6: the attempts of job {name} are out of order"))
}

fn check_lanes(m: &Manifest) -> Result<(), String> {
    let queues = m.lanes.queues().map(|(name, queue)| {
        let tgbs = queue.iter().map(|(seq, tgb)| (*seq, tgb.clone()));
        (name.clone(), tgbs.collect())
    });
    let finished = m.producers.iter().filter(|(_, p)| p.finished);
    let (turn, since) = m.lanes.turn();
    let given = Lanes::stored(
        &m.stream,
        turn,
        since,
        queues.collect(),
        finished.map(|(name, _)| name),
    );
    if given == m.lanes {
        return Ok(());
    }
    Err("I8: what is kept about turns does not follow from the producers".to_owned())
}
