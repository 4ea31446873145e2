//! Checks the states of steps in ledgers, which ranks report:
//!
//! - a state is of a step that its rank trained before, in the attempt of the ledger;
//! - a daemon stores the state of a step once, however often its rank repeats it;
//! - when a mark lands, all steps below it that its rank did not pass over have a stored state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use batchweave_core::ids::{AttemptId, Step};
use serde::Deserialize;

use super::jobs::{JobObject, parse_key};
use super::oracle::Log;
use super::received::History;
use crate::evidence::{Evidence, Violation};
use crate::store::Landed;

/// The part of a ledger object with states, as in docs/format.md.
#[derive(Deserialize)]
struct Object {
    id: AttemptId,
    node: String,
    #[serde(default)]
    states: Vec<Reported>,
}

#[derive(Deserialize)]
struct Reported {
    dp_rank: u32,
    #[serde(default)]
    trained: Vec<(Step, Step)>,
}

type Reader = (AttemptId, u32);

struct States<'a> {
    history: History,
    /// The time at which each rank trained a step first.
    trained: BTreeMap<Reader, BTreeMap<Step, Duration>>,
    stored: BTreeMap<Reader, BTreeSet<Step>>,
    by_node: BTreeSet<(Reader, String, Step)>,
    found: &'a mut Vec<Violation>,
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let mut trained: BTreeMap<Reader, BTreeMap<Step, Duration>> = BTreeMap::new();
    for read in &evidence.received {
        let own = trained.entry((read.attempt, read.coordinate)).or_default();
        own.entry(read.step).or_insert(read.at);
    }
    let mut states = States {
        history: History::read(log),
        trained,
        stored: BTreeMap::new(),
        by_node: BTreeSet::new(),
        found,
    };
    for landed in &evidence.landed {
        if landed.key.contains("/ledger/") {
            states.ledger(landed);
        } else if let Some((job, opened, number, JobObject::Mark(step, coordinate))) =
            parse_key(&landed.key)
        {
            let mut attempts = states.history.attempts.iter();
            let made = attempts
                .find(|(_, a)| (&a.job, a.opened, a.number) == (&job, opened, number))
                .map(|(id, _)| *id);
            if let Some(id) = made {
                states.below((id, coordinate.unwrap_or(0)), step, landed);
            }
        }
    }
}

impl States<'_> {
    fn wrong(&mut self, landed: &Landed, text: &str) {
        let found = Violation::new("states", None, format!("{}: {text}", landed.key));
        self.found.push(found.by(landed.actor, landed.at));
    }

    fn ledger(&mut self, landed: &Landed) {
        let Ok(object) = serde_json::from_slice::<Object>(&landed.body) else {
            return self.wrong(landed, "can't be read");
        };
        for reported in &object.states {
            let reader = (object.id, reported.dp_rank);
            for step in reported.trained.iter().flat_map(|(from, to)| *from..*to) {
                let trained = self.trained.get(&reader).and_then(|own| own.get(&step));
                if trained.is_none_or(|at| *at > landed.at) {
                    let text = format!("coordinate {} did not train step {step}", reader.1);
                    self.wrong(landed, &text);
                }
                if !self.by_node.insert((reader, object.node.clone(), step)) {
                    let text = format!("step {step} of coordinate {} is stored twice", reader.1);
                    self.wrong(landed, &text);
                }
                self.stored.entry(reader).or_default().insert(step);
            }
        }
    }

    /// Checks that all steps below a mark have a stored state.
    fn below(&mut self, reader: Reader, step: Step, landed: &Landed) {
        let Some(attempt) = self.history.attempts.get(&reader.0) else {
            return;
        };
        let none = BTreeSet::new();
        let stored = self.stored.get(&reader).unwrap_or(&none);
        let kept = (attempt.start..step).filter(|step| !self.history.skips(attempt, *step));
        let lost: Vec<Step> = kept.filter(|step| !stored.contains(step)).collect();
        if let Some(first) = lost.first() {
            let text = format!(
                "no state of coordinate {} for step {first} is stored ({} in all)",
                reader.1,
                lost.len()
            );
            self.wrong(landed, &text);
        }
    }
}
