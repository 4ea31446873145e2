//! Checks ledgers independently of the proof of `verify --job`:
//!
//! - their checksums are those of the committed data, and they contain no quarantined steps;
//! - when a mark lands, and with each `told`, all lower steps that the store still has are recorded;
//! - when a mark lands, the steps of earlier attempts that the store still has are recorded, too: of the
//!   coordinates that fall to its rank;
//! - a rank gets the confirmation of a mark only after the mark is stored;
//! - a step is recorded once as first received, and never more often than the rank received it, except
//!   by daemons that could not know of each other's records, and once by each daemon of a later attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use batchweave_core::ids::{AttemptId, Step};
use batchweave_core::keys;
use batchweave_core::manifest::{Entry, Record};
use serde::Deserialize;

use super::jobs::{JobObject, parse_key};
use super::oracle::Log;
use super::received::{Attempt, History};
use super::writers::version;
use crate::evidence::{Evidence, Violation};
use crate::store::Landed;
use crate::world::content::crc;

/// A ledger object as in docs/format.md.
#[derive(Deserialize)]
struct Object {
    id: AttemptId,
    node: String,
    entries: Vec<Told>,
    #[serde(default)]
    told: Vec<Reach>,
}

#[derive(Deserialize)]
struct Told {
    dp_rank: u32,
    first_slice: u32,
    slices: u32,
    from: Step,
    to: Step,
    resumed: bool,
    crcs: String,
    #[serde(default)]
    skipped: Vec<(Step, Step)>,
}

#[derive(Deserialize)]
struct Reach {
    dp_rank: u32,
    to: Step,
}

/// One record of a step.
struct Tell {
    at: Duration,
    node: String,
    resumed: bool,
}

type Reader = (AttemptId, u32);

struct Ledgers<'a> {
    evidence: &'a Evidence,
    log: &'a Log,
    history: History,
    found: &'a mut Vec<Violation>,
    tells: BTreeMap<Reader, BTreeMap<Step, Vec<Tell>>>,
    /// A step below which all steps are recorded, quarantined or reclaimed.
    covered: BTreeMap<Reader, Step>,
    /// The time of a daemon's first `told`, on which other daemons rely.
    claimed: BTreeMap<Reader, BTreeMap<String, Vec<(Step, Duration)>>>,
    watermark: Step,
    marks: BTreeMap<(AttemptId, Option<u32>, Step), Duration>,
    at: Duration,
    actor: u32,
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let mut ledgers = Ledgers {
        evidence,
        log,
        history: History::read(log),
        found,
        tells: BTreeMap::new(),
        covered: BTreeMap::new(),
        claimed: BTreeMap::new(),
        watermark: 0,
        marks: BTreeMap::new(),
        at: Duration::ZERO,
        actor: 0,
    };
    for landed in &evidence.landed {
        ledgers.lands(landed);
    }
    ledgers.marked();
    ledgers.counts();
}

impl Ledgers<'_> {
    fn wrong(&mut self, text: String) {
        let found = Violation::new("ledger", None, text);
        self.found.push(found.by(self.actor, self.at));
    }

    fn lands(&mut self, landed: &Landed) {
        (self.at, self.actor) = (landed.at, landed.actor);
        if landed.key.starts_with(keys::LOG) {
            self.record(&landed.key);
        } else if landed.key.contains("/ledger/") {
            match serde_json::from_slice::<Object>(&landed.body) {
                Ok(object) => self.ledger(&landed.key, object),
                Err(e) => self.wrong(format!("{} can't be read: {e}", landed.key)),
            }
        } else if let Some((job, opened, number, JobObject::Mark(step, coordinate))) =
            parse_key(&landed.key)
        {
            let mut attempts = self.history.attempts.iter();
            let made = attempts
                .find(|(_, a)| (&a.job, a.opened, a.number) == (&job, opened, number))
                .map(|(id, _)| *id);
            if let Some(id) = made {
                // A retry may create the object once more after it was reclaimed.
                let made = self.marks.entry((id, coordinate, step));
                made.or_insert(self.at);
                let reader = (id, coordinate.unwrap_or(0));
                let what = format!("mark {}", landed.key);
                self.below(reader, step, &what);
                self.inherited(reader, &what);
            }
        }
    }

    fn record(&mut self, key: &str) {
        let Some(version) = version(key).filter(|v| !self.log.void.contains(v)) else {
            return;
        };
        let body = self.log.records.get(version as usize);
        let record = body.and_then(|body| Record::from_json(body, version).ok());
        for entry in record.iter().flat_map(|record| &record.entries) {
            if let Entry::Watermark(e) = entry {
                self.watermark = e.step.max(self.watermark);
            }
        }
    }

    fn ledger(&mut self, key: &str, object: Object) {
        let Some(attempt) = self.history.attempts.get(&object.id).cloned() else {
            return self.wrong(format!("{key} is of an attempt that the log does not have"));
        };
        for entry in &object.entries {
            if let Err(text) = self.entry(&attempt, &object, entry) {
                self.wrong(format!("{key}: {text}"));
            }
        }
        for reach in &object.told {
            let reader = (object.id, reach.dp_rank);
            self.below(reader, reach.to, &format!("{key} says that it"));
            let claims = self
                .claimed
                .entry(reader)
                .or_default()
                .entry(object.node.clone())
                .or_default();
            if claims.last().is_none_or(|(to, _)| *to < reach.to) {
                claims.push((reach.to, self.at));
            }
        }
    }

    fn entry(&mut self, attempt: &Attempt, object: &Object, entry: &Told) -> Result<(), String> {
        let mut crcs = (0..entry.crcs.len() / 8).map(|n| &entry.crcs[8 * n..8 * n + 8]);
        for step in entry.from..entry.to {
            let skipped = entry.skipped.iter().any(|(a, b)| (*a..*b).contains(&step));
            if skipped != self.history.skips(attempt, step) {
                return Err(format!("step {step} is quarantined, or is not"));
            }
            if skipped {
                continue;
            }
            let tgb = self.log.steps.get(step as usize);
            for slice in entry.first_slice..entry.first_slice + entry.slices {
                let expected = tgb.map(|tgb| crc(&tgb.producer, tgb.seq, slice));
                let told = crcs.next().and_then(|c| u32::from_str_radix(c, 16).ok());
                if told.is_none() || told != expected {
                    return Err(format!(
                        "step {step} slice {slice}: {told:?}, not {expected:?}"
                    ));
                }
            }
            let reader = self.tells.entry((object.id, entry.dp_rank)).or_default();
            reader.entry(step).or_default().push(Tell {
                at: self.at,
                node: object.node.clone(),
                resumed: entry.resumed,
            });
        }
        Ok(())
    }

    /// Checks the earlier attempts' steps of the coordinates that fall to `reader`: marks let their data go.
    fn inherited(&mut self, (id, coordinate): Reader, what: &str) {
        let Some(own) = self.history.attempts.get(&id).cloned() else {
            return;
        };
        let (mut later, step) = (own.clone(), own.dp_size.max(1) as usize);
        while let Some(parent) = later.parent {
            let is = |a: &Attempt| (&a.job, a.opened, a.number) == (&own.job, own.opened, parent);
            let mut attempts = self.history.attempts.iter();
            let Some((id, earlier)) = attempts.find(|(_, a)| is(a)) else {
                return;
            };
            let (id, earlier) = (*id, earlier.clone());
            for coordinate in (coordinate..earlier.dp_size).step_by(step) {
                self.below((id, coordinate), later.start, what);
            }
            later = earlier;
        }
    }

    /// Checks that all steps below `step` are recorded, as far as the store has them now.
    fn below(&mut self, reader: Reader, step: Step, what: &str) {
        let Some(attempt) = self.history.attempts.get(&reader.0).cloned() else {
            return;
        };
        let mut at = self.covered.get(&reader).copied().unwrap_or(attempt.start);
        let tells = self.tells.get(&reader);
        let told = |step: &Step| tells.is_some_and(|tells| tells.contains_key(step));
        while at < step && (told(&at) || at < self.watermark || self.history.skips(&attempt, at)) {
            at += 1;
        }
        self.covered.insert(reader, at);
        if at < step {
            let (job, number, rank) = (&attempt.job, attempt.number, reader.1);
            let text = format!(
                "{what} covers the steps below {step}: no ledger of {job} attempt {number} coordinate \
                 {rank} tells of {at}"
            );
            self.wrong(text);
        }
    }

    fn marked(&mut self) {
        for told in &self.evidence.marked {
            let own = (told.attempt, Some(told.coordinate), told.step);
            let all = (told.attempt, None, told.step);
            let made = [own, all].iter().any(|mark| {
                let landed = self.marks.get(mark);
                landed.is_some_and(|at| *at <= told.at)
            });
            if !made {
                let text = format!("a rank heard of a mark that is not there: {told:?}");
                (self.at, self.actor) = (told.at, 0);
                self.wrong(text);
            }
        }
    }

    fn counts(&mut self) {
        let evidence = self.evidence;
        let mut received: BTreeMap<(Reader, Step), Vec<(Duration, &str)>> = BTreeMap::new();
        for read in &evidence.received {
            let key = ((read.attempt, read.coordinate), read.step);
            let on = evidence.sessions[read.session].instance.as_str();
            received.entry(key).or_default().push((read.at, on));
        }
        let mut texts = Vec::new();
        for (&reader, steps) in &self.tells {
            let inherited = self.inherited_from(reader.0);
            for (&step, tells) in steps {
                let times = received
                    .get(&(reader, step))
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let heirs: BTreeSet<&str> = tells
                    .iter()
                    .filter(|tell| tell.resumed && inherited.is_some_and(|from| tell.at >= from))
                    .map(|tell| tell.node.as_str())
                    .collect();
                let firsts = tells.iter().filter(|tell| !tell.resumed).count();
                let unaware = self.unaware(reader, step, tells, times);
                if firsts > 1 + unaware || tells.len() > times.len() + unaware + heirs.len() {
                    texts.push(self.too_many_tells((reader, step), tells, times, unaware));
                }
            }
        }
        for text in texts.into_iter().take(3) {
            self.wrong(text);
        }
    }

    /// Describes a step that was recorded more often than the ranks received it.
    fn too_many_tells(
        &self,
        (reader, step): (Reader, Step),
        tells: &[Tell],
        times: &[(Duration, &str)],
        unaware: usize,
    ) -> String {
        let firsts = tells.iter().filter(|tell| !tell.resumed).count();
        let (id, rank) = reader;
        let by: Vec<_> = tells.iter().map(|t| (t.at, &t.node, t.resumed)).collect();
        let sessions = self
            .evidence
            .sessions
            .iter()
            .filter(|s| (s.attempt, s.coordinate) == reader);
        let sessions: Vec<_> = sessions.map(|s| (s.at, &s.instance, s.next_step)).collect();
        format!(
            "attempt {id} coordinate {rank}: step {step} was received {} times and told {} \
             times, {firsts} times as the first, {unaware} unaware: told {by:?}, received \
             {times:?}, sessions {sessions:?}",
            times.len(),
            tells.len()
        )
    }

    /// Returns the time of the first session of a later attempt of the same job.
    fn inherited_from(&self, id: AttemptId) -> Option<Duration> {
        let own = self.history.attempts.get(&id)?;
        let is_later = |session: &&crate::evidence::Session| {
            let other = self.history.attempts.get(&session.attempt);
            other.is_some_and(|a| {
                (&a.job, a.opened) == (&own.job, own.opened) && a.number > own.number
            })
        };
        let sessions = self.evidence.sessions.iter().filter(is_later);
        sessions.map(|session| session.at).min()
    }

    /// Returns the number of daemons that recorded a step and met the rank before any object
    /// recorded it.
    fn unaware(
        &self,
        reader: Reader,
        step: Step,
        tells: &[Tell],
        received: &[(Duration, &str)],
    ) -> usize {
        let Some((first, _)) = received.first() else {
            return 0;
        };
        // A rank may get the acceptance of its session late: the daemon's own objects do not count.
        let claimed = |node: &str| {
            let claims = self.claimed.get(&reader).into_iter().flatten();
            let others = claims.filter(|(by, _)| *by != node);
            let over = others
                .flat_map(|(_, said)| said)
                .filter(|(to, _)| *to > step);
            over.map(|(_, at)| *at).min().unwrap_or(Duration::MAX)
        };
        let begun = |node: &str| {
            let own = |s: &&crate::evidence::Session| {
                (s.attempt, s.coordinate) == reader && s.instance == node && s.at > *first
            };
            let sessions = self.evidence.sessions.iter().filter(own);
            sessions.map(|session| session.at).min()
        };
        // A daemon knows the steps that it sent, and records one again only when a rank receives it
        // again.
        let could_not_know = |node: &str| {
            let told = tells.iter().filter(|tell| tell.node == node).count();
            let own = received.iter().filter(|(_, on)| *on == node).count();
            let elsewhere = own < received.len();
            elsewhere && told <= own + 1 && begun(node).is_some_and(|begun| claimed(node) > begun)
        };
        let nodes: BTreeSet<&str> = tells.iter().map(|tell| tell.node.as_str()).collect();
        nodes
            .into_iter()
            .filter(|node| could_not_know(node))
            .count()
    }
}
