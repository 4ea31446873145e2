//! Stages: producers that make batches by what they know of the log, learn late, are opened again and open late, while two
//! operators set stages. The product's own fold and rules judge each entry; an oracle of a few lines says which stage each
//! batch must have.
//!
//! Explored completely: every order of at most a dozen events. `Mistake` has the errors that it must find.

mod log;

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::guards::{self, Mutation};
use batchweave_core::ids::Seq;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Manifest};

use self::log::{Folds, Written, batch, entry, name, oracle};

/// Most batches of a producer, and those that it makes ahead of its commits.
const BATCHES: u64 = 2;
const AHEAD: usize = 2;
/// Stages that the operators set in all, and openings of a producer.
const STAGES: u64 = 2;
const OPENINGS: u64 = 2;
/// Most records of a log, in seconds and in minutes; with more, it takes hours.
const RECORDS: usize = 5;
const RECORDS_LONG: usize = 6;

/// A deliberate mistake in the rules, an operator or a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// One of the rules of the fold is missing.
    Rule(Mutation),
    /// An operator names only the first producer.
    Partial,
    /// An operator sets a stage from a batch that is committed.
    Late,
    /// An operator does not validate its entry again after a lost race.
    Unjudged,
    /// A producer commits batches that it made before it learned of a stage.
    KeepsEarly,
}

/// The knowledge of a producer, and the batches that it has made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Producer {
    /// The records that it has folded.
    seen: usize,
    /// The stages by which the batches behind its commits were made.
    made: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    log: Vec<Written>,
    producers: [Producer; 2],
    /// The records that each operator has folded.
    operators: [usize; 2],
}

/// The exploration of all orders of events.
#[derive(Debug)]
pub(crate) struct Exploration {
    mistake: Option<Mistake>,
    /// Most records of a log.
    records: usize,
    seen: BTreeSet<State>,
    folds: Folds,
    committed: u64,
}

impl Exploration {
    /// Explores everything; returns the number of states, or the first broken property.
    pub(crate) fn run(mistake: Option<Mistake>, records: usize) -> Result<usize, String> {
        let mutation = match mistake {
            Some(Mistake::Rule(mutation)) => Some(mutation),
            _ => None,
        };
        guards::set(mutation);
        let mut this = Self {
            mistake,
            records,
            seen: BTreeSet::new(),
            folds: Folds::default(),
            committed: 0,
        };
        let start = State {
            log: vec![Written::Opened(0)],
            ..State::default()
        };
        let outcome = this.explore(start);
        guards::set(None);
        outcome?;
        if this.committed == 0 {
            return Err("no batch was committed".to_owned());
        }
        Ok(this.seen.len())
    }

    fn explore(&mut self, start: State) -> Result<(), String> {
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            if !self.seen.insert(state.clone()) || state.log.len() > self.records {
                continue;
            }
            let head = self.folds.of(&state.log);
            if head.void_entries() > 0 {
                return Err(format!("a writer wrote a void entry: {:?}", state.log));
            }
            oracle(&state.log).map_err(|why| format!("{why}: {:?}", state.log))?;
            for producer in 0..2 {
                open.extend(self.producer(&state, &head, producer)?);
            }
            for operator in 0..2 {
                open.extend(self.operator(&state, &head, operator));
            }
        }
        Ok(())
    }

    fn producer(&mut self, state: &State, head: &Manifest, p: usize) -> Result<Vec<State>, String> {
        let mut next = Vec::new();
        let openings = state
            .log
            .iter()
            .filter(|w| **w == Written::Opened(p))
            .count() as u64;
        if openings < OPENINGS {
            let mut opened = state.clone();
            opened.log.push(Written::Opened(p));
            opened.producers[p] = Producer {
                seen: opened.log.len(),
                made: Vec::new(),
            };
            next.push(opened);
        }
        let own = &state.producers[p];
        let Some(committed) = head.producer(&name(p)).map(|state| state.next_seq) else {
            return Ok(next);
        };
        if own.seen < state.log.len() {
            let mut learned = state.clone();
            learned.producers[p].seen = state.log.len();
            next.push(learned);
        }
        if own.made.len() < AHEAD && committed + (own.made.len() as u64) < BATCHES && own.seen > 0 {
            let known = self.folds.of(&state.log[..own.seen]);
            let mut made = state.clone();
            let stage = known.stage_at(&name(p), committed + own.made.len() as u64);
            made.producers[p].made.push(stage);
            next.push(made);
        }
        let (Some(first), true) = (own.made.first(), own.seen == state.log.len()) else {
            return Ok(next);
        };
        let mut after = state.clone();
        let in_force = head.stage_at(&name(p), committed);
        if *first == in_force
            || self.mistake == Some(Mistake::KeepsEarly)
            || guards::skips_stage_check()
        {
            let valid = head.validate(&Entry::Batch(batch(head, &name(p), *first)));
            if valid == Ok(Validity::Applies) {
                after.log.push(Written::Batch(p, *first));
                after.producers[p].made.remove(0);
                after.producers[p].seen = after.log.len();
                self.committed += 1;
            } else {
                return Err(format!("a producer cannot commit: {valid:?}"));
            }
        } else {
            // It goes back to its cursor.
            after.producers[p].made.clear();
        }
        next.push(after);
        Ok(next)
    }

    fn operator(&mut self, state: &State, head: &Manifest, o: usize) -> Vec<State> {
        let mut next = Vec::new();
        let seen = state.operators[o];
        if seen < state.log.len() {
            let mut learned = state.clone();
            learned.operators[o] = state.log.len();
            next.push(learned);
        }
        let stages = state
            .log
            .iter()
            .filter(|w| matches!(w, Written::Stage(_)))
            .count() as u64;
        if seen == 0 || stages >= STAGES {
            return next;
        }
        // The entry is computed by what the operator knows, and validated at the head.
        let known = self.folds.of(&state.log[..seen]);
        for after in 0..2 {
            let from = (0..2).filter_map(|p| {
                let producer = known.producer(&name(p))?;
                let set = producer.stages.keys().next_back().copied().unwrap_or(0);
                Some((p, (producer.next_seq + after).max(set)))
            });
            let mut from: BTreeMap<usize, Seq> = from.collect();
            match self.mistake {
                Some(Mistake::Partial | Mistake::Rule(Mutation::PartialStage)) => {
                    from.retain(|p, _| *p == 0);
                }
                Some(Mistake::Late | Mistake::Rule(Mutation::LateStage)) => {
                    for seq in from.values_mut() {
                        *seq = seq.saturating_sub(1 + after);
                    }
                }
                _ => {}
            }
            let written = Written::Stage(from);
            let entry = entry(head, &written, state.log.len() as u64);
            let is_blind = matches!(
                self.mistake,
                Some(Mistake::Unjudged | Mistake::Partial | Mistake::Late)
            );
            if is_blind || head.validate(&entry) == Ok(Validity::Applies) {
                let mut set = state.clone();
                set.log.push(written);
                set.operators[o] = set.log.len();
                next.push(set);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_has_the_stage_that_the_log_gives_it() {
        let states = Exploration::run(None, RECORDS).unwrap();
        assert!(states > 1000, "{states}");
    }

    #[test]
    #[ignore = "takes a minute; make test-long runs it"]
    fn each_batch_of_longer_logs_has_the_stage_that_the_log_gives_it() {
        let states = Exploration::run(None, RECORDS_LONG).unwrap();
        println!("{states} states");
    }

    #[test]
    fn each_mistake_is_found() {
        let rules = Mutation::STAGES.map(Mistake::Rule);
        let own = [
            Mistake::Partial,
            Mistake::Late,
            Mistake::Unjudged,
            Mistake::KeepsEarly,
        ];
        for mistake in rules.into_iter().chain(own) {
            let found = Exploration::run(Some(mistake), RECORDS);
            assert!(found.is_err(), "{mistake:?}");
        }
    }
}
