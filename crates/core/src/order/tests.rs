//! The promises of the order over random worlds: each document of each pass once, the same after every restart, exact
//! shares; and each deliberate mistake is found.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::synthetic::{Neighbours, SyntheticDocument, SyntheticFiles, SyntheticForm};
use super::*;
use crate::guards::{self, Mutation};
use crate::limits::ORDER_BLOCK_BYTES;

/// One source of a world.
#[derive(Debug, Clone)]
struct Source {
    /// Form, documents and mean size of each file.
    files: Vec<(SyntheticForm, u64, u64)>,
    window: Option<u64>,
    passes: u64,
    weight: f64,
}

#[derive(Debug, Clone)]
struct World {
    sources: Vec<Source>,
    seed: u64,
    of: u32,
    unit: ShareUnit,
    /// The documents after which the mixture changes, and its weights.
    change: Option<(u64, Vec<f64>)>,
}

/// A document as it was given: source, pass, and the document.
type Given = (usize, u64, SyntheticDocument);

/// A world as a producer opens it.
struct Opened {
    files: Vec<SyntheticFiles>,
    orders: Vec<SourceOrder>,
    options: SamplerOptions,
}

impl World {
    fn open(&self, index: u32) -> Opened {
        let files: Vec<SyntheticFiles> = self.sources.iter().map(Source::files).collect();
        let portion = Portion { index, of: self.of };
        let shuffle = |window| Shuffle {
            seed: self.seed,
            window,
        };
        let orders = self.sources.iter().zip(&files).enumerate();
        let orders = orders.map(|(n, (source, files))| {
            let shuffle = source.window.map(shuffle);
            SourceOrder::new(&format!("s{n}"), files.blocks(), shuffle, portion)
        });
        let numbers: Vec<f64> = self.sources.iter().map(|source| source.weight).collect();
        Opened {
            orders: orders.collect(),
            files,
            options: SamplerOptions {
                weights: weights(&numbers).unwrap(),
                passes: self.sources.iter().map(|source| source.passes).collect(),
                unit: self.unit,
                when_source_ends: WhenSourceEnds::GoOn,
                limit: None,
            },
        }
    }

    /// Returns what producer `index` gives, with restarts before the documents that `stops` selects.
    fn run(&self, index: u32, stops: impl Fn(u64) -> bool) -> Vec<Given> {
        let opened = self.open(index);
        let mut state = SamplerState::start(self.sources.len());
        let mut all = Vec::new();
        loop {
            let stored = serde_json::to_string(&state).unwrap();
            let before = all.len();
            state = self.attempt(
                &opened,
                serde_json::from_str(&stored).unwrap(),
                &stops,
                &mut all,
            );
            if all.len() == before {
                return all;
            }
        }
    }

    /// Gives documents from `state` on, up to the next stop, and returns the state after them.
    fn attempt(
        &self,
        opened: &Opened,
        state: SamplerState,
        stops: &impl Fn(u64) -> bool,
        all: &mut Vec<Given>,
    ) -> SamplerState {
        let walks = opened.orders.iter().zip(&opened.files).enumerate();
        let mut walks: Vec<_> = walks
            .map(|(n, (order, files))| {
                let passes = opened.options.passes[n];
                Walk::new(order, files, passes, state.at[n].position)
            })
            .collect();
        let mut options = opened.options.clone();
        if let Some((_, numbers)) = self.change.as_ref().filter(|_| state.mix == 1) {
            options.weights = weights(numbers).unwrap();
        }
        let begin = state.total[0];
        let mut sampler = Sampler::new(options, state);
        loop {
            let given = sampler.state().total[0];
            // The log names a change again and again.
            if let Some((_, numbers)) = self.change.as_ref().filter(|(from, _)| *from <= given) {
                sampler.change(1, weights(numbers).unwrap());
            }
            if given > begin && stops(given) {
                return sampler.state().clone();
            }
            let Some(source) = sampler.next() else {
                return sampler.state().clone();
            };
            match walks[source].next().unwrap_or_else(|never| match never {}) {
                Some((at, document)) => {
                    sampler.give(source, at, Some(document.tokens()));
                    all.push((source, at.pass, document));
                }
                None => sampler.end(source),
            }
        }
    }

    /// Checks everything that the order promises of this world; the error is a sentence.
    fn check(&self, every: u64) -> Result<(), String> {
        let mut counts: BTreeMap<Given, u32> = BTreeMap::new();
        for index in 0..self.of {
            let whole = self.run(index, |_| false);
            let parts = self.run(index, |given| given % every == 0);
            if let Some(n) = whole.iter().zip(&parts).position(|(a, b)| a != b) {
                return Err(format!("with restarts document {n} is another one"));
            }
            if whole.len() != parts.len() {
                return Err("with restarts there are other documents".to_owned());
            }
            self.check_shares(index, &whole)?;
            for given in whole {
                *counts.entry(given).or_default() += 1;
            }
        }
        self.check_once(&counts)?;
        self.check_passes()
    }

    fn check_once(&self, counts: &BTreeMap<Given, u32>) -> Result<(), String> {
        let mut expected = 0;
        for (n, source) in self.sources.iter().enumerate() {
            let files = source.files();
            let weight = self
                .change
                .as_ref()
                .map_or(source.weight, |(_, all)| all[n]);
            if weight == 0.0 || source.weight == 0.0 {
                continue;
            }
            for pass in 0..source.passes {
                for document in files.all() {
                    expected += 1;
                    match counts.get(&(n, pass, document)) {
                        Some(1) => {}
                        other => return Err(format!("{document:?} is given {other:?} times")),
                    }
                }
            }
        }
        let all = self.change.is_some() || counts.len() == expected;
        all.then_some(())
            .ok_or_else(|| "more than the input is given".to_owned())
    }

    /// A source has at most its share and a document more, and at least its share less its part of a document of each.
    fn check_shares(&self, index: u32, given: &[Given]) -> Result<(), String> {
        let amount = |document: &SyntheticDocument| match self.unit {
            ShareUnit::Tokens => document.tokens() as f64,
            ShareUnit::Documents => 1.0,
        };
        let largest = given.iter().map(|(_, _, d)| amount(d)).fold(0.0, f64::max);
        let change = self.change.as_ref().map_or(u64::MAX, |(from, _)| *from) as usize;
        let of = |n: usize| given.iter().filter(|(s, ..)| *s == n).count();
        let left: Vec<usize> = (0..self.sources.len()).map(of).collect();
        for (range, numbers) in [
            (0..change.min(given.len()), None),
            (change.min(given.len())..given.len(), self.change.as_ref()),
        ] {
            let own: Vec<f64> = self.sources.iter().map(|source| source.weight).collect();
            let numbers = numbers.map_or(&own, |(_, numbers)| numbers);
            let sum: f64 = numbers.iter().sum();
            let mut amounts = vec![0.0; numbers.len()];
            let mut seen: Vec<usize> = (0..left.len())
                .map(|n| {
                    given[..range.start]
                        .iter()
                        .filter(|(s, ..)| *s == n)
                        .count()
                })
                .collect();
            for (source, _, document) in &given[range] {
                // Shares end when a source does.
                if (0..left.len()).any(|n| numbers[n] > 0.0 && seen[n] == left[n]) {
                    break;
                }
                amounts[*source] += amount(document);
                seen[*source] += 1;
                let total: f64 = amounts.iter().sum();
                for (n, number) in numbers.iter().enumerate() {
                    let (share, count) = (number / sum, numbers.len() as f64);
                    let (least, most) = (
                        share * (total - count * largest) - 1e-6,
                        share * total + largest + 1e-6,
                    );
                    if !(least..=most).contains(&amounts[n]) {
                        let has = amounts[n];
                        return Err(format!(
                            "producer {index} has {has} of source {n}, not {least} to {most}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Two passes of many blocks have different orders of blocks.
    fn check_passes(&self) -> Result<(), String> {
        for order in self
            .open(0)
            .orders
            .iter()
            .filter(|order| order.is_shuffled())
        {
            let pass = |pass| -> Vec<OpenBlock> {
                let groups = 0..order.groups();
                groups.flat_map(|group| order.group(pass, group)).collect()
            };
            if order.positions() >= 16 && pass(0) == pass(1) {
                return Err("two passes have the same order".to_owned());
            }
        }
        Ok(())
    }
}

impl Source {
    fn files(&self) -> SyntheticFiles {
        let mut files = SyntheticFiles::default();
        for &(form, documents, mean) in &self.files {
            files.add(form, documents, mean);
        }
        files
    }
}

fn any_file() -> impl Strategy<Value = (SyntheticForm, u64, u64)> {
    let form = prop_oneof![
        Just(SyntheticForm::Lines),
        Just(SyntheticForm::Compressed),
        (1..40_u64).prop_map(SyntheticForm::RowGroups),
    ];
    // Some files have several blocks of lines, some are empty.
    (form, 0..60_u64, prop_oneof![50..300_u64, Just(40_000)])
}

fn any_source() -> impl Strategy<Value = Source> {
    let window = prop_oneof![
        Just(None),
        Just(Some(1)),
        Just(Some(20_000)),
        Just(Some(4 << 20)),
        Just(Some(128 << 20)),
    ];
    let files = prop::collection::vec(any_file(), 1..8);
    let weight = prop_oneof![Just(0.0), Just(0.25), Just(1.0), Just(3.5)];
    (files, window, 1..4_u64, weight).prop_map(|(files, window, passes, weight)| Source {
        files,
        window,
        passes,
        weight,
    })
}

fn any_world() -> impl Strategy<Value = World> {
    let sources = prop::collection::vec(any_source(), 1..4);
    let unit = prop_oneof![Just(ShareUnit::Tokens), Just(ShareUnit::Documents)];
    let change = prop::option::of((0..200_u64, prop::collection::vec(0.5..9.0_f64, 4)));
    (sources, any::<u64>(), 1..5_u32, unit, change).prop_map(
        |(mut sources, seed, of, unit, change)| {
            sources[0].weight = 2.0;
            let round = |number: &f64| (number * 4.0).round() / 4.0;
            let change = change.map(|(from, numbers)| {
                let numbers = numbers.iter().take(sources.len()).map(round);
                (from, numbers.collect())
            });
            World {
                sources,
                seed,
                of,
                unit,
                change,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_world_keeps_the_promises(world in any_world(), every in 7..60_u64) {
        world.check(every).unwrap();
    }
}

/// A world in which each mistake shows: two producers, several passes, a change of the mixture.
fn busy_world() -> World {
    let source = |weight, window| Source {
        files: (0..24)
            .map(|_| (SyntheticForm::Lines, 40, 40_000))
            .collect(),
        window,
        passes: 2,
        weight,
    };
    World {
        sources: vec![source(3.0, Some(8 << 20)), source(1.0, Some(8 << 20))],
        seed: 5,
        of: 2,
        unit: ShareUnit::Tokens,
        change: Some((300, vec![1.0, 2.0])),
    }
}

#[test]
fn every_mistake_is_found() {
    busy_world().check(50).unwrap();
    for mutation in Mutation::ORDER {
        guards::set(Some(mutation));
        let found = busy_world().check(50);
        guards::set(None);
        assert!(found.is_err(), "{mutation:?}");
    }
}

/// Every place of a small world, one after the other.
#[test]
fn a_restart_before_any_document_changes_nothing() {
    let mut world = busy_world();
    for source in &mut world.sources {
        source.files.truncate(3);
        source.files.push((SyntheticForm::RowGroups(7), 30, 60_000));
        source.files.push((SyntheticForm::Compressed, 30, 60_000));
        source.window = Some(300_000);
    }
    world.change = Some((40, vec![1.0, 2.0]));
    for index in 0..world.of {
        let whole = world.run(index, |_| false);
        for stop in 1..whole.len() as u64 {
            assert_eq!(world.run(index, |given| given == stop), whole, "{stop}");
        }
    }
}

/// The figures of docs/order.md: 1,000 files of 10,000 documents of 1 KB with the default window would take long
/// here, and `batchweave bench order` measures them. These are smaller in all sizes.
#[test]
fn neighbours_are_rarely_of_one_file() {
    let mut files = SyntheticFiles::default();
    for _ in 0..200 {
        files.add(SyntheticForm::Lines, 500, 2000);
    }
    let shuffle = Some(Shuffle {
        seed: 3,
        window: 64 * ORDER_BLOCK_BYTES,
    });
    let order = SourceOrder::new("s", files.blocks(), shuffle, Portion::ALL);
    let mut walk = Walk::new(&order, &files, 1, Position::default());
    let (mut all, mut tail) = (Neighbours::default(), Neighbours::default());
    let documents = files.documents();
    let count: u64 = documents.iter().sum();
    for n in 0..count {
        let (_, document) = walk.next().unwrap_or_else(|never| match never {}).unwrap();
        all.push(document.file);
        if n >= count - count / 50 {
            tail.push(document.file);
        }
    }
    let (all, tail) = (all.ratio(&documents), tail.ratio(&documents));
    assert!(all < 8.0 && tail < 16.0, "{all} {tail}");
}

#[test]
fn a_run_ends_at_its_limit_or_with_its_first_source() {
    let mut world = busy_world();
    world.change = None;
    let opened = world.open(0);
    let count = |options: SamplerOptions| {
        let opened = Opened {
            options,
            ..world.open(0)
        };
        let mut all = Vec::new();
        world.attempt(&opened, SamplerState::start(2), &|_| false, &mut all);
        all
    };
    let with = |limit| SamplerOptions {
        limit: Some(limit),
        ..opened.options.clone()
    };
    assert_eq!(count(with(Limit::Documents(77))).len(), 77);
    let tokens = |all: &[Given]| -> u64 { all.iter().map(|(_, _, d)| d.tokens()).sum() };
    let limited = count(with(Limit::Tokens(1_000_000)));
    let before = &limited[..limited.len() - 1];
    assert!(tokens(&limited) >= 1_000_000 && tokens(before) < 1_000_000);
    let finish = SamplerOptions {
        when_source_ends: WhenSourceEnds::Finish,
        ..opened.options.clone()
    };
    let ended = count(finish);
    let first = ended.iter().filter(|(source, ..)| *source == 0).count();
    let all = world.run(0, |_| false);
    assert_eq!(
        first,
        all.iter().filter(|(source, ..)| *source == 0).count()
    );
    assert!(ended.len() < all.len());
}

#[test]
fn a_source_without_documents_ends_even_if_it_repeats_for_ever() {
    let empty = Source {
        files: vec![(SyntheticForm::Lines, 0, 100)],
        window: Some(100),
        passes: 0,
        weight: 1.0,
    };
    let world = World {
        sources: vec![
            empty,
            Source {
                passes: 1,
                ..busy_world().sources[0].clone()
            },
        ],
        change: None,
        of: 1,
        ..busy_world()
    };
    let given = world.run(0, |given| given == 10);
    assert_eq!(given.len(), 24 * 40);
}
