//! Checks deletions, watermarks and attempts in the order of their effects, with full knowledge of the
//! run; and the objects that remain at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use batchweave_core::ids::{AttemptId, JobName, ProducerName, RequestId, Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::{Entry, Record};
use batchweave_store::Op;

use super::jobs::{Job, JobObject, parse_key};
use super::oracle::{Log, Tgb};
use crate::evidence::{Evidence, Violation};
use crate::lifecycle::RECLAIMER;
use crate::trace::{Event, What};

/// A committed TGB as the content of an object.
struct Content {
    committed: Version,
    placed: Version,
    step: Step,
}

struct Replay<'a> {
    evidence: &'a Evidence,
    log: &'a Log,
    found: &'a mut Vec<Violation>,
    contents: BTreeMap<&'a str, Vec<Content>>,
    present: BTreeSet<&'a str>,
    /// The number of records until now.
    head: Version,
    steps: Step,
    watermark: Step,
    jobs: BTreeMap<JobName, Job>,
    requests: BTreeSet<RequestId>,
    attempts: BTreeSet<AttemptId>,
    at: Duration,
    actor: u32,
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let mut replay = Replay {
        evidence,
        log,
        found,
        contents: contents(log),
        present: BTreeSet::new(),
        head: 0,
        steps: 0,
        watermark: 0,
        jobs: BTreeMap::new(),
        requests: BTreeSet::new(),
        attempts: BTreeSet::new(),
        at: Duration::ZERO,
        actor: 0,
    };
    for event in &evidence.events {
        if event.what == (What::Landed { created: true }) {
            replay.lands(event);
        }
    }
    replay.at_the_end();
}

fn contents(log: &Log) -> BTreeMap<&str, Vec<Content>> {
    let mut contents: BTreeMap<&str, Vec<Content>> = BTreeMap::new();
    let waiting = log
        .producers
        .values()
        .flat_map(|p| &p.waiting)
        .map(|tgb| (Step::MAX, tgb));
    let placed = (0..).zip(&log.steps);
    for (step, tgb) in placed.chain(waiting) {
        let Tgb {
            version, placed, ..
        } = *tgb;
        for key in &tgb.objects {
            contents.entry(key).or_default().push(Content {
                committed: version,
                placed,
                step,
            });
        }
    }
    contents
}

impl<'a> Replay<'a> {
    fn wrong(&mut self, check: &'static str, text: String) {
        let version = self.head.checked_sub(1);
        self.found
            .push(Violation::new(check, version, text).by(self.actor, self.at));
    }

    fn lands(&mut self, event: &'a Event) {
        (self.at, self.actor) = (event.at, event.actor);
        let key = event.key.as_ref();
        match event.op {
            Op::Delete if key.starts_with(keys::DATA) => self.deleted(key),
            Op::Delete => {}
            _ if key.starts_with(keys::DATA) => drop(self.present.insert(key)),
            _ if key.starts_with(keys::LOG) => self.record(),
            _ => self.apply_job_object(key),
        }
    }

    /// Checks that a deleted object is not needed by a readable step or one to come.
    fn deleted(&mut self, key: &'a str) {
        self.present.remove(key);
        let (head, watermark) = (self.head, self.watermark);
        let named = self.contents.get(key).into_iter().flatten();
        let live = named
            .filter(|c| c.committed < head)
            .find(|c| c.placed >= head || c.step >= watermark);
        if let Some(content) = live {
            let what = if content.placed < head {
                format!("step {}", content.step)
            } else {
                "a TGB that waits for its turn".to_owned()
            };
            let text = format!("{key} is deleted: it holds {what}, the watermark is {watermark}");
            self.wrong("live-data", text);
        }
    }

    fn record(&mut self) {
        let version = self.head;
        self.head += 1;
        let body = self.log.records.get(version as usize);
        let Some(body) = body.filter(|_| !self.log.void.contains(&version)) else {
            return;
        };
        let Ok(record) = Record::from_json(body, version) else {
            return;
        };
        let placed = self.log.steps[self.steps as usize..]
            .iter()
            .take_while(|tgb| tgb.placed <= version)
            .count() as Step;
        self.ahead(self.steps + placed);
        self.steps += placed;
        for entry in &record.entries {
            let repeated = entry.request().is_some_and(|id| !self.requests.insert(id));
            if !repeated {
                self.entry(version, entry);
            }
        }
    }

    fn entry(&mut self, version: Version, entry: &Entry) {
        match entry {
            Entry::Batch(e) => {
                let parts = e.tgbs.iter().flat_map(|tgb| &tgb.parts);
                let gone = parts
                    .map(|p| p.key.as_str())
                    .find(|k| !self.present.contains(k));
                if let Some(key) = gone {
                    self.wrong("live-data", format!("{key} is committed, but not there"));
                }
            }
            Entry::JobOpened(e) => {
                self.jobs.insert(e.job.clone(), Job::new(version, e));
            }
            Entry::JobClosed(e) => {
                let closed = self.jobs.remove(&e.job);
                let by_lease = self.evidence.actor(self.actor).starts_with(RECLAIMER);
                if by_lease && closed.is_some_and(|job| !job.lease) {
                    self.wrong("lease", format!("{} is closed without a lease", e.job));
                }
            }
            Entry::AttemptOpened(e) => {
                if !self.attempts.insert(e.attempt) {
                    return;
                }
                if let Some(job) = self.jobs.get_mut(&e.job) {
                    job.attempt(e.start, e.dp_size);
                }
                if e.start < self.watermark {
                    let text = format!("{} starts at {}, below it", e.job, e.start);
                    self.wrong("watermark", text);
                }
            }
            Entry::Watermark(e) => self.moved(e.step, e.request.is_some()),
            _ => {}
        }
    }

    /// Checks that no record takes the stream further ahead of the slowest job than its bound
    /// allows, by that job's published progress; one item more may follow when the job has read all
    /// steps.
    fn ahead(&mut self, after: Step) {
        let bound = self.evidence.plan.life.as_ref().and_then(|life| life.ahead);
        let pacing = self.jobs.values().filter(|job| job.paces);
        let slowest = pacing.map(Job::position).min();
        let (Some(bound), Some(slowest)) = (bound, slowest) else {
            return;
        };
        let starved = self.steps <= slowest;
        if after > self.steps && after > slowest + bound && !starved {
            let text = format!("{after} steps: the slowest is at {slowest}, {bound} ahead allowed");
            self.wrong("ahead", text);
        }
    }

    /// Checks that no watermark passes a step that a job keeps, by the knowledge at that time.
    fn moved(&mut self, step: Step, asked: bool) {
        let holding: Vec<_> = self.jobs.iter().filter(|(_, job)| job.holds).collect();
        let mut broken = Vec::new();
        for (name, job) in &holding {
            if job.needs(self.steps).is_none_or(|needed| step > needed) {
                broken.push(format!("watermark {step}: {name} {}", job.describe()));
            }
        }
        if holding.is_empty() && !asked {
            broken.push(format!(
                "watermark {step} without a job that holds, unasked"
            ));
        }
        if step <= self.watermark || step > self.steps {
            broken.push(format!("watermark {step} after {}", self.watermark));
        }
        for text in broken {
            self.wrong("watermark", text);
        }
        self.watermark = step;
    }

    fn apply_job_object(&mut self, key: &str) {
        let Some((name, opened, attempt, object)) = parse_key(key) else {
            return;
        };
        let job = self.jobs.get_mut(&name).filter(|job| job.opened == opened);
        match (job, object) {
            (Some(job), JobObject::Mark(step, coordinate)) => job.mark(attempt, step, coordinate),
            (Some(job), JobObject::Progress(step, first, last)) => {
                job.progress(attempt, step, first, last);
            }
            // A deletion for a job that is closed.
            (None, _) => {}
        }
    }

    /// Checks that the last pass left only needed objects, and the highest watermark that the jobs
    /// allow.
    fn at_the_end(&mut self) {
        self.at = self.evidence.lasted;
        self.actor = 0;
        let holding = self
            .jobs
            .values()
            .filter(|job| job.holds)
            .filter(|job| !job.ahead(self.steps));
        let needs: Option<Vec<Step>> = holding.map(|job| job.needs(self.steps)).collect();
        let most = needs.and_then(|needs| needs.into_iter().min());
        if let Some(most) = most.filter(|most| *most.min(&self.steps) > self.watermark) {
            let text = format!("the watermark {} could be {most}", self.watermark);
            self.wrong("leak", text);
        }
        let objects = &self.evidence.objects;
        let data: Vec<_> = objects
            .keys()
            .filter(|k| k.starts_with(keys::DATA))
            .collect();
        for key in data {
            if !self.needed(key) {
                let text = format!("{key} is left, the watermark is {}", self.watermark);
                self.wrong("leak", text);
            }
        }
        self.hints_and_signs();
        let live = self
            .contents
            .iter()
            .filter(|(_, all)| all.iter().any(|c| c.step >= self.watermark));
        let lost = live
            .map(|(key, _)| *key)
            .find(|key| !objects.contains_key(*key));
        if let Some(key) = lost {
            self.wrong("live-data", format!("{key} is not there at the end"));
        }
    }

    /// Checks that marks and progress of closed jobs, and dead intents, are deleted.
    fn hints_and_signs(&mut self) {
        let all_finished = self.log.producers.values().all(|p| p.finished);
        let dead = |key: &str| {
            let closed = parse_key(key).is_some_and(|(name, opened, ..)| {
                self.jobs.get(&name).is_none_or(|job| job.opened != opened)
            });
            closed || (key.starts_with(keys::INTENTS) && all_finished)
        };
        let left = self.evidence.objects.keys().find(|key| dead(key));
        if let Some(key) = left {
            self.wrong("leak", format!("{key} is left"));
        }
    }

    /// Returns true if this object may still be read or committed.
    fn needed(&self, key: &str) -> bool {
        if let Some(contents) = self.contents.get(key) {
            return contents.iter().any(|c| c.step >= self.watermark);
        }
        let may_commit = || {
            let (producer, rest) = key.strip_prefix(keys::DATA)?.split_once('/')?;
            let (folder, name) = rest.split_once('/')?;
            let producer: ProducerName = producer.parse().ok()?;
            let state = self.log.producers.get(&producer)?;
            let current = folder == format!("{}-{}", state.epoch, state.nonce?);
            let (_, last) = keys::data_seqs(name)?;
            Some(current && last >= state.next && !state.finished)
        };
        may_commit().unwrap_or(false)
    }
}
