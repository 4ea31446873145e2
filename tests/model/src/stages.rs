//! Stages: producers that make batches by what they know of the log, learn late, are opened again and open late, while two
//! operators set stages. The product's own fold and rules judge each entry; an oracle of a few lines says which stage each
//! batch must have.
//!
//! Explored completely: every order of at most a dozen events. `Mistake` has the errors that it must find.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::cursor::Cursor;
use batchweave_core::guards::{self, Mutation};
use batchweave_core::ids::{CommitId, Hash, Nonce, ProducerName, RequestId, Seq};
use batchweave_core::manifest::entry::{BatchEntry, Opened, Stage};
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Hints, Manifest, Record, Writer};
use batchweave_core::stream::{StreamConfig, StreamOrder};
use batchweave_core::tgb::Digest;
use batchweave_core::{fixtures, keys};

/// Most batches of a producer, and those that it makes ahead of its commits.
const BATCHES: u64 = 2;
const AHEAD: usize = 2;
/// Stages that the operators set in all, and openings of a producer.
const STAGES: u64 = 2;
const OPENINGS: u64 = 2;
/// Most records of a log, in seconds and in minutes; with more, it takes hours.
const RECORDS: usize = 5;
const RECORDS_LONG: usize = 6;

/// A deliberate mistake.
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

/// What a producer knows and has made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Producer {
    /// The records that it has folded.
    seen: usize,
    /// The stages by which the batches behind its commits were made.
    made: Vec<u64>,
}

/// A record of one entry, as the model writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    Opened(usize),
    /// A batch of a producer, with the stage by which it was made.
    Batch(usize, u64),
    Stage(BTreeMap<usize, Seq>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct State {
    log: Vec<Written>,
    producers: [Producer; 2],
    /// The records that each operator has folded.
    operators: [usize; 2],
}

fn name(producer: usize) -> ProducerName {
    ["p0", "p1"][producer].parse().expect("a name")
}

fn stream() -> StreamConfig {
    fixtures::stream([7; 16], StreamOrder::Arrival, Vec::new())
}

/// Folds of logs, each made from that of the log without its last record.
#[derive(Debug, Default)]
struct Folds(BTreeMap<Vec<Written>, Manifest>);

impl Folds {
    fn of(&mut self, log: &[Written]) -> Manifest {
        if let Some(known) = self.0.get(log) {
            return known.clone();
        }
        let folded = match log.split_last() {
            None => {
                let config = stream();
                let json = config.to_json();
                Manifest::new(config, &json)
            }
            Some((last, before)) => {
                let mut m = self.of(before);
                fold(&mut m, last, before.len() as u64);
                m
            }
        };
        self.0.insert(log.to_vec(), folded.clone());
        folded
    }
}

fn fold(m: &mut Manifest, written: &Written, version: u64) {
    let entry = entry(m, written, version);
    let record = Record {
        format: Record::format_of(std::slice::from_ref(&entry)),
        stream: m.stream_id(),
        version,
        prev: m.prev(),
        view: m.view(),
        commit: CommitId([1; 16]),
        writer: Writer {
            name: "model".to_owned(),
            epoch: 0,
        },
        hints: Hints::default(),
        entries: vec![entry],
    };
    m.fold(&record.to_json()).expect("a readable record");
}

fn entry(m: &Manifest, written: &Written, version: u64) -> Entry {
    match written {
        Written::Opened(producer) => {
            let epoch = m.producer(&name(*producer)).map_or(0, |p| p.epoch) + 1;
            Entry::Opened(Opened {
                producer: name(*producer),
                instance: "i".to_owned(),
                nonce: Nonce([epoch as u8; 8]),
                epoch,
                began: m.next_version(),
            })
        }
        Written::Batch(producer, stage) => Entry::Batch(batch(m, &name(*producer), *stage)),
        Written::Stage(from) => {
            let mut request = [0; 16];
            request[..8].copy_from_slice(&(version + 1).to_le_bytes());
            Entry::Stage(Stage {
                request: RequestId(request),
                id: m.stages().newest() + 1,
                name: "long".parse().expect("a name"),
                from: from.iter().map(|(p, seq)| (name(*p), *seq)).collect(),
                rows_per_slice: 2 + m.stages().newest() as u32,
                seq_len: 8,
                form: String::new(),
                fingerprint: Hash::sha256(b"long"),
                mixture: None,
            })
        }
    }
}

fn batch(m: &Manifest, producer: &ProducerName, stage: u64) -> BatchEntry {
    let state = m.producer(producer).expect("opened");
    let seq = state.next_seq;
    let key = keys::data(producer, state.epoch, state.nonce, (seq, seq), 0, 0);
    let mut tgb = fixtures::tgb(&key, 0, 1024, Digest([1; 32]));
    let shape = m.stages().all.get(&stage);
    let rows = shape.map(|s| u64::from(m.stream().slices) * u64::from(s.rows_per_slice));
    tgb.rows = rows.unwrap_or(tgb.rows);
    BatchEntry {
        producer: producer.clone(),
        epoch: state.epoch,
        first_seq: seq,
        last_seq: seq,
        cursor_before: state.cursor.hash(),
        cursor: Cursor(serde_json::json!({ "row": seq + 1 })),
        mixture: 0,
        stage,
        first_step: None,
        tgbs: vec![tgb],
    }
}

/// Checks the stage of each committed batch by a plain reading of docs/format.md.
fn oracle(log: &[Written]) -> Result<(), String> {
    let mut stages: Vec<BTreeMap<usize, Seq>> = Vec::new();
    let (mut opened, mut next) = (BTreeSet::new(), [0_u64; 2]);
    // A producer that opens behind a stage begins in it.
    let mut began: BTreeMap<usize, usize> = BTreeMap::new();
    for written in log {
        match written {
            Written::Opened(producer) => {
                if opened.insert(*producer) {
                    began.insert(*producer, stages.len());
                }
            }
            Written::Stage(from) => {
                for producer in &opened {
                    let Some(first) = from.get(producer) else {
                        return Err(format!("stage {} leaves out a producer", stages.len() + 1));
                    };
                    if *first < next[*producer] {
                        return Err("a stage begins before a committed batch".to_owned());
                    }
                }
                stages.push(from.clone());
            }
            Written::Batch(producer, made_by) => {
                let seq = next[*producer];
                let begun = (1..)
                    .zip(&stages)
                    .filter(|(_, from)| from.get(producer).is_some_and(|first| *first <= seq));
                let last = begun.map(|(id, _)| id).last();
                let wanted = last.unwrap_or(began[producer] as u64);
                if *made_by != wanted {
                    return Err(format!(
                        "batch {seq} of producer {producer} is of stage {made_by}, not {wanted}"
                    ));
                }
                next[*producer] += 1;
            }
        }
    }
    Ok(())
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
