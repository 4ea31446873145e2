//! Checks the steps that ranks received: each data coordinate of an attempt gets the committed steps
//! from its start on, in order, without those that were quarantined when the attempt was opened; each
//! session delivers every step once from the rank's position on.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptId, AttemptNo, JobName, RequestId, Step, Version};
use batchweave_core::manifest::{Entry, Record};

use super::oracle::Log;
use crate::evidence::{Evidence, Received, Violation};
use crate::world::content::{SLICES, data_crc};

/// A range of steps, with the versions that set and lifted it.
struct Quarantine {
    id: RequestId,
    first: Step,
    last: Step,
    added: Version,
    lifted: Version,
}

/// An attempt in the log.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) job: JobName,
    /// Its job's incarnation, and its number in it.
    pub(super) opened: Version,
    pub(super) number: AttemptNo,
    pub(super) start: Step,
    /// The attempt from which it continues.
    pub(super) parent: Option<AttemptNo>,
    pub(super) dp_size: u32,
    /// The version of its record.
    pub(super) version: Version,
}

/// The attempts and quarantines of a log.
#[derive(Default)]
pub(super) struct History {
    quarantines: Vec<Quarantine>,
    pub(super) attempts: BTreeMap<AttemptId, Attempt>,
    counts: BTreeMap<(JobName, Version), AttemptNo>,
}

impl History {
    pub(super) fn read(log: &Log) -> Self {
        let mut history = Self::default();
        for (version, body) in (0..).zip(&log.records) {
            let record = Record::from_json(body, version)
                .ok()
                .filter(|_| !log.void.contains(&version));
            for entry in record.iter().flat_map(|r| &r.entries) {
                history.entry(version, entry);
            }
        }
        history
    }

    fn entry(&mut self, version: Version, entry: &Entry) {
        match entry {
            Entry::Quarantined(e) if self.quarantines.iter().all(|q| q.id != e.request) => {
                self.quarantines.push(Quarantine {
                    id: e.request,
                    first: e.first,
                    last: e.last,
                    added: version,
                    lifted: Version::MAX,
                });
            }
            Entry::QuarantineLifted(e) => {
                let lifted = self.quarantines.iter_mut().filter(|q| q.id == e.quarantine);
                lifted.for_each(|q| q.lifted = version.min(q.lifted));
            }
            Entry::AttemptOpened(e) if !self.attempts.contains_key(&e.attempt) => {
                let count = self.counts.entry((e.job.clone(), e.opened)).or_default();
                let attempt = Attempt {
                    job: e.job.clone(),
                    opened: e.opened,
                    number: *count,
                    start: e.start,
                    parent: e.parent.map(|parent| parent.attempt),
                    dp_size: e.dp_size,
                    version,
                };
                *count += 1;
                self.attempts.insert(e.attempt, attempt);
            }
            _ => {}
        }
    }

    /// Returns true if an attempt skips a step.
    pub(super) fn skips(&self, attempt: &Attempt, step: Step) -> bool {
        let at = attempt.version;
        let in_force = |q: &&Quarantine| q.added < at && at < q.lifted;
        let mut ranges = self.quarantines.iter().filter(in_force);
        ranges.any(|q| (q.first..=q.last).contains(&step))
    }

    /// Returns the first step from this one on that an attempt does not skip.
    pub(super) fn kept(&self, attempt: &Attempt, mut step: Step) -> Step {
        while self.skips(attempt, step) {
            step += 1;
        }
        step
    }
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let history = History::read(log);
    let mut wrong = |text: String| found.push(Violation::new("received", None, text));
    // The next step of each session, and of each coordinate.
    let mut sessions: Vec<Step> = Vec::new();
    let mut furthest: BTreeMap<(AttemptId, u32), Step> = BTreeMap::new();
    for session in &evidence.sessions {
        let Some(attempt) = history.attempts.get(&session.attempt) else {
            let (job, id) = (&session.job, session.attempt);
            return wrong(format!("attempt {id} of {job} is not in the log"));
        };
        sessions.push(history.kept(attempt, session.next_step));
        furthest.insert((session.attempt, session.coordinate), attempt.start);
    }
    for read in &evidence.received {
        let Some(attempt) = history.attempts.get(&read.attempt) else {
            continue;
        };
        let who = reader(attempt, read);
        let expected = history.kept(attempt, sessions[read.session]);
        if expected != read.step {
            wrong(format!("{who} got step {}, not {expected}", read.step));
        }
        sessions[read.session] = read.step + 1;
        let come = furthest.entry((read.attempt, read.coordinate)).or_default();
        let at = history.kept(attempt, *come);
        if read.step > at {
            wrong(format!(
                "{who} never got the steps from {at} to {}",
                read.step
            ));
        }
        *come = (read.step + 1).max(*come);
        if !right_data(log, attempt, read) {
            wrong(format!("{who} got other data as step {}", read.step));
        }
    }
}

/// Names the reader of `read` in a violation.
fn reader(attempt: &Attempt, read: &Received) -> String {
    format!(
        "{}@{} attempt {} coordinate {}",
        read.job, attempt.opened, attempt.number, read.coordinate
    )
}

/// Returns true if a rank received the data that its step holds for its coordinate.
fn right_data(log: &Log, attempt: &Attempt, read: &Received) -> bool {
    let each = SLICES / attempt.dp_size.max(1);
    let own = read.coordinate * each..(read.coordinate + 1) * each;
    let tgb = log.steps.get(read.step as usize);
    let sums = tgb.map(|t| {
        own.map(|slice| data_crc(&t.producer, t.seq, slice))
            .collect()
    });
    sums.as_ref() == Some(&read.sums)
}
