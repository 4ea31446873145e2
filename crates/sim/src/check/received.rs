//! What trainers received: each data coordinate of an attempt the steps from its start on, in
//! order, once, without those that were quarantined when the attempt was opened, and as committed.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptNo, JobName, RequestId, Step, Version};
use batchweave_core::manifest::{Entry, Record};

use super::Violation;
use super::oracle::Log;
use crate::world::Evidence;

/// A range of steps, when it came into force and when it was lifted.
struct Quarantine {
    id: RequestId,
    first: Step,
    last: Step,
    added: Version,
    lifted: Version,
}

/// The attempts and quarantines of a log.
#[derive(Default)]
struct History {
    quarantines: Vec<Quarantine>,
    /// Version and start of each attempt.
    attempts: BTreeMap<(JobName, Version, AttemptNo), (Version, Step)>,
    numbers: BTreeMap<(JobName, Version), Vec<batchweave_core::ids::AttemptId>>,
}

impl History {
    fn read(log: &Log) -> Self {
        let mut history = Self::default();
        for (version, body) in (0..).zip(&log.records) {
            let record = Record::from_json(body, version);
            let record = record.ok().filter(|_| !log.void.contains(&version));
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
            Entry::AttemptOpened(e) => {
                let numbers = self.numbers.entry((e.job.clone(), e.opened)).or_default();
                if !numbers.contains(&e.attempt) {
                    let key = (e.job.clone(), e.opened, numbers.len() as AttemptNo);
                    self.attempts.insert(key, (version, e.start));
                    numbers.push(e.attempt);
                }
            }
            _ => {}
        }
    }

    fn skipped(&self, attempt: Version, step: Step) -> bool {
        let in_force = |q: &&Quarantine| q.added < attempt && attempt < q.lifted;
        let mut ranges = self.quarantines.iter().filter(in_force);
        ranges.any(|q| (q.first..=q.last).contains(&step))
    }
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let history = History::read(log);
    let mut next: BTreeMap<_, Step> = BTreeMap::new();
    for read in &evidence.received {
        let attempt = (read.job.clone(), read.opened, read.attempt);
        let who = format!("{}@{} attempt {}", read.job, read.opened, read.attempt);
        let mut wrong = |text: String| found.push(Violation::new("received", None, text));
        let Some(&(version, start)) = history.attempts.get(&attempt) else {
            wrong(format!("{who} is not in the log"));
            continue;
        };
        let expected = next.entry((attempt, read.coordinate)).or_insert(start);
        while history.skipped(version, *expected) {
            *expected += 1;
        }
        if *expected != read.step {
            wrong(format!("{who} got step {}, not {expected}", read.step));
        }
        *expected = read.step + 1;
        let tgb = log.steps.get(read.step as usize);
        if tgb.is_none_or(|t| t.producer != read.producer || t.seq != read.seq) {
            wrong(format!("{who} got another TGB as step {}", read.step));
        }
    }
}
