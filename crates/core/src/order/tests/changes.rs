//! Changes of the mixture in a run with kills: a producer packs documents into batches, commits them late, learns of
//! changes late, goes back when it learned too late, and is killed at any moment. Its batches must be those of a
//! plain loop that follows docs/order.md with all changes known.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::super::synthetic::{SyntheticDocument, SyntheticFiles, SyntheticForm};
use super::super::*;
use super::world::{Opened, Source, World};
use crate::guards::{self, Mutation};
use crate::ids::Seq;

/// Tokens of a batch.
const BATCH: u64 = 40_000;

/// A part of a document in a batch: source, pass, document, first token and the one after the last.
type Piece = (usize, u64, SyntheticDocument, u64, u64);
type Batch = Vec<Piece>;

/// A change by a person: the documents taken in all when it is made, the batches after the committed ones with which
/// it begins, and the weights.
type Change = (u64, Seq, Vec<f64>);

#[derive(Debug, Clone)]
struct Run {
    world: World,
    changes: Vec<Change>,
    /// The documents taken in all at which the producer is killed.
    kills: Vec<u64>,
    /// Batches that are complete and not committed, at most.
    lag: usize,
    /// Tokens that wait in the packer beyond a batch.
    look: u64,
}

/// The log: what survives.
#[derive(Debug, Default)]
struct Log {
    batches: Vec<Batch>,
    mixtures: Vec<u64>,
    /// The sampler's state, as stored, and the tokens of its next document that are committed.
    cursor: (String, u64),
    from: BTreeMap<Seq, u64>,
    weights: BTreeMap<u64, Vec<Weight>>,
}

/// A complete batch, its mixture, and the cursor after it.
type Complete = (Batch, u64, (String, u64));

/// How an instance ended.
enum End {
    Over,
    Killed,
    WentBack,
}

impl Log {
    fn next_seq(&self) -> Seq {
        self.batches.len() as u64
    }

    /// Commits a batch; false when its mixture is not the one in force.
    fn commit(&mut self, (batch, mixture, cursor): Complete) -> bool {
        let in_force = self.from.range(..=self.next_seq()).next_back();
        if in_force.map_or(0, |(_, id)| *id) != mixture {
            return false;
        }
        self.batches.push(batch);
        self.mixtures.push(mixture);
        self.cursor = cursor;
        true
    }

    fn set(&mut self, after: Seq, numbers: &[f64]) {
        let id = self.weights.len() as u64 + 1;
        let earliest = self.from.keys().next_back().copied().unwrap_or(0);
        let from = (self.next_seq() + after).max(earliest);
        self.from.insert(from, id);
        self.weights.insert(id, weights(numbers).unwrap());
    }
}

/// One instance of the producer.
struct Instance {
    sampler: Sampler,
    changes: MixtureChanges,
    /// Documents that wait: the first token that does, and the state before the document.
    waiting: VecDeque<(Piece, SamplerState)>,
    complete: VecDeque<Complete>,
    next_seq: Seq,
}

impl Run {
    fn simulate(&self) -> Log {
        let opened = self.world.open(0);
        let state = SamplerState::start(self.world.sources.len());
        let mut log = Log {
            cursor: (serde_json::to_string(&state).unwrap(), 0),
            ..Log::default()
        };
        let (mut clock, mut changes) = (0, VecDeque::from(self.changes.clone()));
        let mut kills = VecDeque::from(self.kills.clone());
        loop {
            match self.instance(&opened, &mut log, &mut clock, &mut changes, &mut kills) {
                End::Over => return log,
                End::Killed | End::WentBack => {}
            }
        }
    }

    fn instance(
        &self,
        opened: &Opened,
        log: &mut Log,
        clock: &mut u64,
        changes: &mut VecDeque<Change>,
        kills: &mut VecDeque<u64>,
    ) -> End {
        let state: SamplerState = serde_json::from_str(&log.cursor.0).unwrap();
        let (from, passes) = (log.from.clone(), opened.options.passes.clone());
        let (known, state) = MixtureChanges::resume(from, log.next_seq(), state, passes);
        let mut walks = walks(opened, &state);
        let options = SamplerOptions {
            mixtures: log.weights.clone(),
            ..opened.options.clone()
        };
        let mut skip = log.cursor.1;
        let mut this = Instance {
            sampler: Sampler::new(options, state),
            changes: known,
            waiting: VecDeque::new(),
            complete: VecDeque::new(),
            next_seq: log.next_seq(),
        };
        loop {
            *clock += 1;
            if changes.front().is_some_and(|(at, ..)| at <= clock) {
                let (_, after, numbers) = changes.pop_front().unwrap();
                log.set(after, &numbers);
            }
            if kills.front().is_some_and(|at| at <= clock) {
                kills.pop_front();
                return End::Killed;
            }
            let over = !this.take(&mut walks, &mut skip);
            this.pack(self.look);
            while this.complete.len() > self.lag || over && !this.complete.is_empty() {
                if !log.commit(this.complete.pop_front().unwrap()) {
                    return End::WentBack;
                }
                this.learn(log);
            }
            if over {
                return End::Over;
            }
        }
    }
}

type Walks<'a> = Vec<Walk<'a, &'a SyntheticFiles>>;

fn walks<'a>(opened: &'a Opened, state: &SamplerState) -> Walks<'a> {
    let sources = opened.orders.iter().zip(&opened.files).enumerate();
    let walk = |(n, (order, files)): (usize, (&'a SourceOrder, &'a SyntheticFiles))| {
        let passes = opened.options.passes[n];
        Walk::new(order, files, passes, state.at[n].position)
    };
    sources.map(walk).collect()
}

impl Instance {
    /// Takes the next document; false when the input is over.
    fn take(&mut self, walks: &mut Walks, skip: &mut u64) -> bool {
        while let Some(source) = self.sampler.next() {
            let Ok(next) = walks[source].next_document();
            let Some((at, document)) = next else {
                self.sampler.end(source);
                continue;
            };
            let before = self.sampler.state().clone();
            let tokens = document.tokens();
            self.sampler.give(source, at.after(), Some(tokens));
            let piece = (source, at.pass, document, std::mem::take(skip), tokens);
            self.waiting.push_back((piece, before));
            return true;
        }
        false
    }

    fn pack(&mut self, look: u64) {
        let waiting = |this: &Self| -> u64 {
            let left = this.waiting.iter().map(|(p, _)| p.4.saturating_sub(p.3));
            left.sum()
        };
        let mut begins = Vec::new();
        while waiting(self) >= BATCH + look {
            let mut batch = Batch::new();
            let mut room = BATCH;
            while room > 0 {
                let (piece, _) = self.waiting.front_mut().unwrap();
                let end = piece.4.min(piece.3 + room);
                room -= end.saturating_sub(piece.3);
                batch.push((piece.0, piece.1, piece.2, piece.3, end));
                piece.3 = end;
                if piece.3 == piece.4 {
                    self.waiting.pop_front();
                }
            }
            let taken = self.sampler.state().total[0];
            let mixture = self.changes.at(self.next_seq);
            self.next_seq += 1;
            begins.extend(self.changes.complete(self.next_seq, taken));
            let oldest = self.waiting.front();
            let state = oldest.map_or_else(|| self.sampler.state().clone(), |(_, s)| s.clone());
            let skip = oldest.map_or(0, |(piece, _)| piece.3);
            let stored = self.changes.store(state, taken, false);
            let cursor = (serde_json::to_string(&stored).unwrap(), skip);
            self.complete.push_back((batch, mixture, cursor));
        }
        for id in begins {
            self.sampler.change(id);
        }
    }

    fn learn(&mut self, log: &Log) {
        self.changes.learn(&log.from, self.next_seq);
        for (id, weights) in &log.weights {
            self.sampler.learn(*id, weights.clone());
        }
    }
}

/// The batches by a plain loop over docs/order.md, with the changes of `log`.
fn expected(run: &Run, log: &Log) -> Vec<Batch> {
    let opened = run.world.open(0);
    let mut walks = walks(&opened, &SamplerState::start(run.world.sources.len()));
    let mut numbers: Vec<f64> = opened.options.weights.iter().map(|w| w.number()).collect();
    let mut given = vec![0.0; numbers.len()];
    let mut changes: VecDeque<_> = log.from.iter().collect();
    let (mut ended, mut taken) = (vec![false; numbers.len()], 0);
    let (mut batches, mut rest): (Vec<Batch>, Vec<Piece>) = (Vec::new(), Vec::new());
    loop {
        // The batch before it is complete with this document.
        while let Some((from, id)) = changes.front()
            && (**from == 0 || taken >= **from * BATCH + run.look)
        {
            numbers = log.weights[id].iter().map(|w| w.number()).collect();
            given.fill(0.0);
            changes.pop_front();
        }
        let open = (0..numbers.len()).filter(|n| !ended[*n] && numbers[*n] > 0.0);
        let next =
            open.min_by(|a, b| (given[*a] * numbers[*b]).total_cmp(&(given[*b] * numbers[*a])));
        let Some(source) = next else { break };
        let Ok(next) = walks[source].next_document();
        let Some((at, document)) = next else {
            ended[source] = true;
            continue;
        };
        let tokens = document.tokens();
        given[source] += match run.world.unit {
            ShareUnit::Tokens => tokens as f64,
            ShareUnit::Documents => 1.0,
        };
        taken += tokens;
        rest.push((source, at.pass, document, 0, tokens));
    }
    let mut waiting = VecDeque::from(rest);
    while taken >= BATCH + run.look {
        taken -= BATCH;
        let (mut batch, mut room) = (Batch::new(), BATCH);
        while room > 0 {
            let piece = waiting.front_mut().unwrap();
            let end = piece.4.min(piece.3 + room);
            room -= end - piece.3;
            batch.push((piece.0, piece.1, piece.2, piece.3, end));
            piece.3 = end;
            if end == piece.4 {
                waiting.pop_front();
            }
        }
        batches.push(batch);
    }
    batches
}

fn check(run: &Run) -> Result<(), String> {
    let log = run.simulate();
    let expected = expected(run, &log);
    if let Some(n) = (0..expected.len()).find(|n| log.batches.get(*n) != Some(&expected[*n])) {
        return Err(format!("batch {n} of {} is another one", expected.len()));
    }
    if log.batches.len() != expected.len() {
        return Err("there are more batches".to_owned());
    }
    Ok(())
}

fn any_run() -> impl Strategy<Value = Run> {
    let file = (0..3_u8, 20..80_u64, 2_000..60_000_u64).prop_map(|(form, documents, mean)| {
        let form = [
            SyntheticForm::Lines,
            SyntheticForm::Compressed,
            SyntheticForm::RowGroups(13),
        ][form as usize];
        (form, documents, mean)
    });
    let window = prop_oneof![Just(None), Just(Some(300_000)), Just(Some(4 << 20))];
    let source = (prop::collection::vec(file, 1..4), window, 1..3_u64);
    let numbers = prop::collection::vec(prop_oneof![Just(1.0), Just(2.0), Just(5.5)], 3);
    let change = (1..500_u64, 1..6_u64, numbers);
    (
        prop::collection::vec(source, 3),
        (any::<u64>(), any::<bool>()),
        prop::collection::vec(change, 0..4),
        prop::collection::vec(1..900_u64, 0..8),
        (0..5_usize, prop_oneof![Just(0), Just(100_000_u64)]),
    )
        .prop_map(
            |(sources, (seed, tokens), mut changes, mut kills, (lag, look))| {
                changes.sort_by_key(|(at, ..)| *at);
                kills.sort_unstable();
                let numbered = sources.into_iter().enumerate();
                let sources = numbered.map(|(n, (files, window, passes))| Source {
                    files,
                    window,
                    passes,
                    weight: [3.0, 1.0, 0.5][n],
                });
                let unit = [ShareUnit::Documents, ShareUnit::Tokens][usize::from(tokens)];
                let world = World {
                    sources: sources.collect(),
                    seed,
                    of: 1,
                    unit,
                    change: None,
                };
                Run {
                    world,
                    changes,
                    kills,
                    lag,
                    look,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn changes_and_kills_leave_the_batches_as_the_order_has_them(run in any_run()) {
        check(&run).unwrap();
    }
}

/// A run in which each mistake shows: changes that are learned early and late, and kills between them.
fn busy_run() -> Run {
    let source = |weight| Source {
        files: (0..10)
            .map(|_| (SyntheticForm::Lines, 30, 40_000))
            .collect(),
        window: Some(4 << 20),
        passes: 2,
        weight,
    };
    Run {
        world: World {
            sources: vec![source(3.0), source(1.0)],
            seed: 7,
            of: 1,
            unit: ShareUnit::Tokens,
            change: None,
        },
        changes: vec![(60, 6, vec![1.0, 2.0]), (200, 1, vec![5.0, 1.0])],
        kills: vec![40, 75, 76, 120, 260, 300],
        lag: 3,
        look: 100_000,
    }
}

#[test]
fn each_mistake_with_changes_is_found() {
    check(&busy_run()).unwrap();
    for mutation in [
        Mutation::MixtureIgnored,
        Mutation::MixtureTwice,
        Mutation::DocumentTwice,
        Mutation::GivenForgotten,
        Mutation::MixtureAtOnce,
    ] {
        guards::set(Some(mutation));
        let found = check(&busy_run());
        guards::set(None);
        assert!(found.is_err(), "{mutation:?}");
    }
}
