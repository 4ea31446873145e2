//! Checks the changes that drivers made, from the log and what ranks did, independently of the product's own check:
//!
//! - each of its steps was trained before it, in the attempt of the newest lineage that has the step, by all coordinates;
//! - its sums are those of the losses that these ranks reported, so no step of another attempt counts;
//! - no batch of its steps is of a mixture before the newest;
//! - no step counts in two changes of one lineage.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use batchweave_core::ids::{AttemptId, AttemptNo, JobName, ProducerName, Seq, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::entry::Mixture;
use batchweave_core::manifest::{Entry, Record};
use serde::Deserialize;

use super::oracle::Log;
use super::received::{Attempt, History};
use crate::evidence::{Evidence, Violation};
use crate::lifecycle::reports::Reporter;

/// The part of a reason that is checked, as in docs/format.md.
#[derive(Deserialize)]
struct Reason {
    job: JobName,
    opened: Version,
    attempt: AttemptNo,
    from: Step,
    to: Step,
    read: u64,
    counted: u64,
    sources: Vec<Source>,
}

#[derive(Deserialize)]
struct Source {
    number: u16,
    sum: f64,
    weight: f64,
}

type Attempts<'a> = Vec<(AttemptId, &'a Attempt)>;

struct Changes<'a> {
    log: &'a Log,
    /// The time at which each rank trained a step first.
    trained: BTreeMap<(AttemptId, u32, Step), Duration>,
    /// The first batch of each producer with the newest mixture.
    newest: BTreeMap<ProducerName, Seq>,
    before: Vec<Reason>,
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let history = History::read(log);
    let mut trained = BTreeMap::new();
    for read in &evidence.received {
        let reader = (read.attempt, read.coordinate, read.step);
        trained.entry(reader).or_insert(read.at);
    }
    let landed = evidence.landed.iter().rev();
    let landed: BTreeMap<&str, Duration> = landed.map(|one| (&*one.key, one.at)).collect();
    let mut changes = Changes {
        log,
        trained,
        newest: BTreeMap::new(),
        before: Vec::new(),
    };
    for (version, body) in (0..).zip(&log.records) {
        let record = Record::from_json(body, version).ok();
        let record = record.filter(|_| !log.void.contains(&version));
        let at = landed.get(keys::log(version).as_str()).copied();
        for entry in record.iter().flat_map(|record| &record.entries) {
            if let Entry::Mixture(entry) = entry {
                let at = at.unwrap_or_default();
                let faults = changes.mixture(entry, &history, version, at);
                let wrong = |text| Violation::new("changes", Some(version), text);
                found.extend(faults.into_iter().map(wrong));
            }
        }
    }
}

/// Returns the attempts of a job's lineage when a version was written, the newest first.
fn lineage<'a>(history: &'a History, reason: &Reason, version: Version) -> Attempts<'a> {
    let of_job = |attempt: &Attempt| (&attempt.job, attempt.opened) == (&reason.job, reason.opened);
    let own = history.attempts.iter().map(|(id, attempt)| (*id, attempt));
    let known = own.filter(|(_, attempt)| of_job(attempt) && attempt.version < version);
    let by_number: BTreeMap<AttemptNo, _> = known.map(|one| (one.1.number, one)).collect();
    let mut next = by_number.last_key_value().map(|(number, _)| *number);
    let mut all = Vec::new();
    while let Some(one) = next.and_then(|number| by_number.get(&number)) {
        all.push(*one);
        next = one.1.parent;
    }
    all
}

/// Returns the attempt of a lineage that has a step: later ones begin behind it.
fn of_step<'a>(attempts: &Attempts<'a>, step: Step) -> Option<(AttemptId, &'a Attempt)> {
    let mut holding = attempts.iter().filter(|(_, attempt)| attempt.start <= step);
    holding.next().copied()
}

impl Changes<'_> {
    fn mixture(
        &mut self,
        entry: &Mixture,
        history: &History,
        version: Version,
        at: Duration,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(why) = &entry.why {
            match Reason::deserialize(why) {
                Ok(reason) => {
                    let attempts = lineage(history, &reason, version);
                    faults = self.change(&reason, &attempts, history, at);
                    self.before.push(reason);
                }
                Err(error) => faults.push(format!("a reason that can't be read: {error}")),
            }
        }
        self.newest.clone_from(&entry.from);
        faults
    }

    fn change(
        &self,
        reason: &Reason,
        attempts: &Attempts<'_>,
        history: &History,
        at: Duration,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        let steps = reason.from..reason.to;
        let last = of_step(attempts, steps.end.saturating_sub(1));
        if last.is_none_or(|(_, attempt)| attempt.number != reason.attempt) {
            faults.push(format!(
                "its last step is not of attempt {}",
                reason.attempt
            ));
        }
        let mut readers = Vec::new();
        for step in steps.clone() {
            let Some((id, attempt)) = of_step(attempts, step) else {
                faults.push(format!("step {step} is of no attempt"));
                continue;
            };
            if history.skips(attempt, step) {
                continue;
            }
            for coordinate in 0..attempt.dp_size {
                let trained = self.trained.get(&(id, coordinate, step));
                if trained.is_none_or(|trained| *trained > at) {
                    let number = attempt.number;
                    faults.push(format!(
                        "coordinate {coordinate} of attempt {number} had not trained step {step}"
                    ));
                }
                let attempt = id;
                readers.push((
                    step,
                    Reporter {
                        attempt,
                        coordinate,
                    },
                ));
            }
        }
        faults.extend(sums(reason, &readers));
        faults.extend(self.older(&steps));
        faults.extend(self.twice(reason, attempts));
        let whose = |fault| format!("change by steps {steps:?} of {}: {fault}", reason.job);
        faults.into_iter().map(whose).collect()
    }

    /// Finds a batch of a mixture before the newest.
    fn older(&self, steps: &Range<Step>) -> Option<String> {
        let mut tgbs = steps.clone().filter_map(|step| {
            let tgb = self.log.steps.get(step as usize)?;
            let first = self.newest.get(&tgb.producer)?;
            (tgb.seq < *first).then(|| format!("step {step} is of an older mixture"))
        });
        tgbs.next()
    }

    /// Finds a change of the same lineage that counted one of the steps.
    fn twice(&self, reason: &Reason, attempts: &Attempts<'_>) -> Option<String> {
        let stands = |before: &&Reason| {
            let last = of_step(attempts, before.to - 1);
            let is_same = last.is_some_and(|(_, attempt)| attempt.number == before.attempt);
            (&before.job, before.opened) == (&reason.job, reason.opened) && is_same
        };
        let mut standing = self.before.iter().filter(stands);
        let before = standing.find(|before| before.to > reason.from)?;
        Some(format!(
            "steps {}..{} were counted before",
            before.from, before.to
        ))
    }
}

/// Compares the sums of a change with the losses that its readers reported. Some may be lost.
fn sums(reason: &Reason, readers: &[(Step, Reporter)]) -> Vec<String> {
    let mut faults = Vec::new();
    let (read, counted) = (readers.len() as u64, reason.counted);
    if reason.read != read || counted > read || counted * 100 < read * 95 {
        faults.push(format!(
            "{counted} of {} pairs, and {read} were trained",
            reason.read
        ));
    }
    for source in &reason.sources {
        let mut expected = (0.0, 0.0);
        for (step, reader) in readers {
            let (sum, weight) = reader.loss(*step, source.number);
            expected = (expected.0 + f64::from(sum), expected.1 + f64::from(weight));
        }
        let found = (source.sum, source.weight);
        let is_part = found.0 < expected.0 && found.1 < expected.1;
        let is_right = found == expected || (counted < read && is_part);
        if !is_right {
            let number = source.number;
            faults.push(format!(
                "{found:?} of source {number}, and ranks reported {expected:?}"
            ));
        }
    }
    faults
}
