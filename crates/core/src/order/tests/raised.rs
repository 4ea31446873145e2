//! Restarts with more passes of a source: the documents that were taken behind the cursor's place come again in their order,
//! and each document of each pass is given once.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::synthetic::SyntheticForm;
use super::super::*;
use super::any_source;
use super::world::{Given, Opened, Source, World};
use crate::guards::{self, Mutation};

/// A restart: the total of documents at which it happens, those that the cursor lies before it, and the source that gets
/// one more pass.
type Raise = (u64, u64, usize);

/// Documents that a producer takes, and the state before each.
type Taken = Vec<(Given, SamplerState)>;

/// Takes documents from `state` on, up to a total of `until` or the end.
fn take(opened: &Opened, state: SamplerState, until: u64) -> Taken {
    let mut walks: Vec<_> = opened
        .orders
        .iter()
        .zip(&opened.files)
        .enumerate()
        .map(|(n, (order, files))| {
            Walk::new(order, files, opened.options.passes[n], state.at[n].position)
        })
        .collect();
    let mut waiting = vec![None; walks.len()];
    let mut sampler = Sampler::new(opened.options.clone(), state);
    let mut taken = Taken::new();
    while sampler.state().total[0] < until
        && let Some(source) = sampler.next()
    {
        let next = waiting[source].take().or_else(|| {
            let Ok(next) = walks[source].next_document();
            next
        });
        match next {
            Some((at, _)) if sampler.holds(source, at.pass) => {
                waiting[source] = next;
                sampler.end(source);
            }
            Some((at, document)) => {
                let before = sampler.state().clone();
                sampler.give(source, at.after(), Some(document.tokens()));
                taken.push(((source, at.pass, document), before));
            }
            None => sampler.end(source),
        }
    }
    taken
}

fn check(world: &World, raises: &[Raise]) -> Result<(), String> {
    let mut world = world.clone();
    let mut taken = take(
        &world.open(0),
        SamplerState::start(world.sources.len()),
        u64::MAX,
    );
    let mut last = 0;
    for &(at, back, source) in raises {
        let at = at as usize;
        if at <= last || at >= taken.len() {
            continue;
        }
        // The producer had taken this many. Cursors move forward.
        taken.truncate(at);
        let place = (at - (back as usize).clamp(1, at)).max(last);
        last = place;
        let passes: Vec<u64> = world.sources.iter().map(|source| source.passes).collect();
        let changes = MixtureChanges::resume(BTreeMap::new(), 0, taken[place].1.clone(), passes);
        let (mut changes, state) = changes;
        let stored = changes.store(state, at as u64, true);
        let stored: SamplerState =
            serde_json::from_value(stored.to_json()).map_err(|why| why.to_string())?;
        let number = source % world.sources.len();
        world.sources[number].passes += 1;
        let again = take(&world.open(0), stored, u64::MAX);
        let pairs = taken[place..].iter().zip(&again);
        if let Some(n) = pairs.clone().position(|(was, is)| was.0 != is.0) {
            return Err(format!("document {n} behind the place is another one"));
        }
        if again.len() < at - place {
            return Err("fewer documents behind the place".to_owned());
        }
        taken.truncate(place);
        taken.extend(again);
    }
    each_once(&world, &taken)
}

fn each_once(world: &World, taken: &Taken) -> Result<(), String> {
    let mut counts: BTreeMap<Given, u32> = BTreeMap::new();
    for (given, _) in taken {
        *counts.entry(*given).or_default() += 1;
    }
    for (n, source) in world.sources.iter().enumerate() {
        let passes = if source.weight == 0.0 {
            0
        } else {
            source.passes
        };
        for pass in 0..passes {
            for document in source.files().all() {
                match counts.remove(&(n, pass, document)) {
                    Some(1) => {}
                    other => return Err(format!("{document:?} is given {other:?} times")),
                }
            }
        }
    }
    counts
        .is_empty()
        .then_some(())
        .ok_or_else(|| "more than the input".to_owned())
}

fn world(sources: Vec<Source>, seed: u64, tokens: bool) -> World {
    World {
        sources,
        seed,
        of: 1,
        unit: [ShareUnit::Documents, ShareUnit::Tokens][usize::from(tokens)],
        change: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn more_passes_begin_behind_what_was_taken(
        mut sources in prop::collection::vec(any_source(), 1..4),
        (seed, tokens) in (any::<u64>(), any::<bool>()),
        mut raises in prop::collection::vec((1..600_u64, 1..120_u64, 0..4_usize), 1..5),
    ) {
        raises.sort_unstable();
        // Not all weights are zero.
        sources[0].weight = sources[0].weight.max(0.25);
        check(&world(sources, seed, tokens), &raises).unwrap();
    }
}

/// The first source ends long before the second one.
fn unequal() -> World {
    let source = |documents| Source {
        files: vec![(SyntheticForm::Lines, documents, 200)],
        window: None,
        passes: 1,
        weight: 1.0,
    };
    world(vec![source(20), source(200)], 7, true)
}

#[test]
fn more_passes_at_once_are_found() {
    // The source ends within the documents that were taken, and before them.
    let cases = [(60, 40), (120, 30)];
    for (at, back) in cases {
        check(&unequal(), &[(at, back, 0)]).unwrap();
        guards::set(Some(Mutation::PassesAtOnce));
        let found = check(&unequal(), &[(at, back, 0)]);
        guards::set(None);
        assert!(found.is_err(), "{at} {back}");
    }
}

#[test]
fn a_state_of_an_earlier_release_holds_sources_that_had_ended() {
    let mut world = unequal();
    let taken = take(&world.open(0), SamplerState::start(2), 120);
    let stored = SamplerState {
        ahead: 30,
        ..taken[90].1.clone()
    };
    world.sources[0].passes = 2;
    let again = take(&world.open(0), stored, 120);
    let given = |taken: &Taken| taken.iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!(given(&again), given(&taken)[90..]);
}
