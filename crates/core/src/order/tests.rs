//! The promises of the order over random worlds: each document of each pass once, the same after every restart, exact
//! shares; and each deliberate mistake is found.

use proptest::prelude::*;

use self::world::{Given, Opened, Source, World};
use super::synthetic::{Neighbours, SyntheticFiles, SyntheticForm};
use super::*;
use crate::guards::{self, Mutation};
use crate::limits::ORDER_BLOCK_BYTES;

mod changes;
mod raised;
mod world;

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

/// Like the table of docs/choosing-order.md (1,000 files of 10,000 documents of 1 KB with the default window), smaller in
/// all sizes.
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
        let (_, document) = walk
            .next_document()
            .unwrap_or_else(|never| match never {})
            .unwrap();
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

/// The documents are those of `GoOn`, and the end is that of the last source with one, wherever a restart falls.
#[test]
fn a_run_ends_with_its_last_source_that_has_an_end() {
    let mut world = busy_world();
    (world.of, world.change) = (1, None);
    for source in &mut world.sources {
        source.files.truncate(3);
    }
    world.sources[0].passes = 0;
    world.sources.push(Source {
        files: vec![(SyntheticForm::Lines, 20, 40_000)],
        passes: 1,
        ..world.sources[1].clone()
    });
    let attempts = |when_source_ends, limit, every: u64| {
        let opened = world.open(0);
        let options = SamplerOptions {
            when_source_ends,
            limit,
            ..opened.options.clone()
        };
        let opened = Opened { options, ..opened };
        let (mut state, mut all) = (SamplerState::start(3), Vec::new());
        loop {
            let before = all.len();
            state = world.attempt(&opened, state, &|given| given % every == 0, &mut all);
            if all.len() == before {
                return all;
            }
        }
    };
    let whole = attempts(WhenSourceEnds::Last, None, u64::MAX);
    for every in [1, 2, 7] {
        assert_eq!(attempts(WhenSourceEnds::Last, None, every), whole);
    }
    let of = |source| whole.iter().filter(|(n, ..)| *n == source).count();
    assert_eq!((of(1), of(2)), (2 * 3 * 40, 20));
    let longer = Some(Limit::Documents(whole.len() as u64 + 50));
    let on = attempts(WhenSourceEnds::GoOn, longer, u64::MAX);
    assert_eq!(on[..whole.len()], whole);
    assert!(on[whole.len()..].iter().all(|(n, ..)| *n == 0), "endless");
    // Sources without end alone have none.
    world.sources.truncate(1);
    let opened = world.open(0);
    let alone = Sampler::new(opened.options, SamplerState::start(1));
    assert!(!alone.only_endless_left());
}
