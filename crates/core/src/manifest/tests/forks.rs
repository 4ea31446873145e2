//! Forks of random logs at every step, and forks of those forks. Each is compared with what follows from the parent's
//! whole history: which batch of each producer is the first with a step of the fork, where its cursor stands, which
//! mixtures are in force, and, under `lanes`, which batch each later step has.

mod history;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use self::history::{Act, Change, History, digest, most, names};
use super::*;
use crate::guards::{self, Mutation};
use crate::ids::{ProducerName, Seq, Step, Version};
use crate::manifest::fork::ForkState;
use crate::order::MixtureSpec;

/// Fails with a text unless a condition holds.
fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), TestCaseError> {
    if holds {
        Ok(())
    } else {
        Err(TestCaseError::fail(text()))
    }
}

/// Checks the stages of a fork: those that begin for some producer at or before its first batch there, for all.
fn check_stages(
    h: &History,
    child: &Manifest,
    (version, firsts): (Option<usize>, &BTreeMap<&ProducerName, Seq>),
) -> Result<(), TestCaseError> {
    let known = |at: Version| at == Version::MAX || version.is_some_and(|v| at <= v as u64);
    let begins =
        |(name, seq): (&ProducerName, &Seq)| *seq <= firsts.get(name).copied().unwrap_or(0);
    let known: Vec<_> = h.stages.iter().filter(|stage| known(stage.2)).collect();
    let begun = known.iter().filter(|(_, from, _)| from.iter().any(begins));
    let late = h.late.iter().filter(|(name, _)| firsts.contains_key(name));
    let begun = begun.map(|stage| stage.0).chain(late.map(|(_, id)| *id));
    let mut newest = begun.max().unwrap_or(0);
    // A stage that another one replaced for some producer is carried with that one.
    let number = |id: u64, name: &ProducerName| {
        let of = known.iter().find(|stage| stage.0 == id)?;
        of.1.get(name).copied()
    };
    let inherited = |id: u64| {
        known
            .iter()
            .any(|stage| stage.0 == id && stage.2 == Version::MAX)
    };
    let replacing_of = |id: u64, name: &ProducerName| {
        let later = known.iter().filter(|later| later.0 > id);
        let at = |later: &&&Change| later.1.get(name).copied();
        match number(id, name) {
            Some(own) => later
                .filter(|later| at(later) == Some(own))
                .map(|later| later.0)
                .max(),
            // Of a stage of an ancestor that was replaced, the number is not known.
            None if inherited(id) => later
                .filter(|later| at(later).is_some())
                .map(|later| later.0)
                .min(),
            None => None,
        }
    };
    let replacing = |id| {
        names()
            .iter()
            .filter_map(|name| replacing_of(id, name))
            .max()
    };
    while let Some(id) = replacing(newest) {
        newest = id;
    }
    ensure(child.stages().newest() == newest, || {
        format!(
            "stage {} is the last one, not {newest}",
            child.stages().newest()
        )
    })?;
    for name in names() {
        if !firsts.contains_key(&name) && !known.iter().any(|stage| stage.1.contains_key(&name)) {
            continue;
        }
        let late = h.late.get(&name).map(|id| (0, *id));
        for seq in 0..firsts.get(&name).copied().unwrap_or(0) + 20 {
            let own = known.iter().filter(|stage| stage.0 <= newest);
            let own = own.filter_map(|(id, from, _)| Some((*from.get(&name)?, *id)));
            let own = own.chain(late.filter(|_| firsts.contains_key(&name)));
            let last = own
                .filter(|(from, _)| *from <= seq)
                .max_by_key(|(from, id)| (*from, *id));
            let expected = last.map_or(0, |(_, id)| id);
            let found = child.stage_at(&name, seq);
            ensure(found == expected, || {
                format!("{name} {seq}: stage {found}, not {expected}")
            })?;
        }
    }
    Ok(())
}

/// Checks one fork of `h` by the history alone, and returns its beginning.
fn check_state(h: &History, step: Step) -> Result<(ForkState, Manifest, usize), TestCaseError> {
    let first_step = h.states[0].stream().first_step();
    let (state, version) = h.fork(step);
    let child = h.child(&state);
    let at = version.map_or(&h.states[0], |v| &h.states[v + 1]);
    let below = &h.steps[..(step - first_step) as usize];
    let firsts: BTreeMap<&ProducerName, Seq> = at
        .producers()
        .map(|(name, _)| {
            let base = h.states[0].producer(name).map_or(0, |p| p.next_seq);
            let own = below.iter().filter(|(producer, _)| producer == name);
            (name, base + own.count() as u64)
        })
        .collect();
    let set = |id: &&Change| version.is_some_and(|v| id.2 <= v as u64);
    let known: Vec<_> = h
        .mixtures
        .iter()
        .filter(|m| m.2 == Version::MAX || set(m))
        .collect();
    let begins = |(_, from, _): &Change| {
        from.iter()
            .any(|(name, seq)| firsts.get(name).is_some_and(|first| seq <= first))
    };
    let carried: Vec<_> = known.into_iter().filter(|m| begins(m)).collect();
    for (name, p) in child.producers() {
        let (first, made) = (firsts[name], p.made_from());
        ensure(p.next_seq == first, || {
            format!("{name} begins with {} and not {first}", p.next_seq)
        })?;
        let row = p.cursor.0.get("row").and_then(serde_json::Value::as_u64);
        ensure(row.unwrap_or(0) == made, || {
            format!("{name}: cursor at {row:?}, made from {made}")
        })?;
        let digests = p
            .again
            .as_ref()
            .map(|again| again.digests.clone())
            .unwrap_or_default();
        let parents = (made..first).map(|seq| digest(name, seq));
        ensure(digests.into_iter().eq(parents), || {
            format!("{name}: other digests")
        })?;
        let newest = at.producer(name).unwrap();
        if newest.next_seq > first {
            let list = newest.input_list().unwrap();
            ensure(p.input_list().unwrap() == list, || {
                format!("{name}: an old input list")
            })?;
        }
        for seq in made..first + 30 {
            let changes = carried
                .iter()
                .filter_map(|(id, from, _)| Some((*from.get(name)?, *id)));
            let force = changes.filter(|(from, _)| *from <= seq).max();
            let expected = force.map_or(0, |(_, id)| id);
            let found = child.mixture_at(name, seq);
            ensure(found == expected, || {
                format!("{name} {seq}: mixture {found}, not {expected}")
            })?;
        }
    }
    check_stages(h, &child, (version, &firsts))?;
    let last = carried.iter().map(|m| m.0).max().unwrap_or(0);
    ensure(child.mixture().id == last, || {
        "another last mixture".to_owned()
    })?;
    Ok((state, child, version.map_or(0, |v| v + 1)))
}

/// Goes on in a fork with the parent's batches, opened anew and in other entries, and compares the steps.
fn check_continued(
    h: &History,
    step: Step,
    child: &Manifest,
    sizes: &[u8],
) -> Result<(), TestCaseError> {
    let rest = h.steps[(step - h.states[0].stream().first_step()) as usize..].to_vec();
    let lanes = child.stream().order == StreamOrder::Lanes;
    let mut next = History::new(child.clone(), Vec::new(), 1);
    for producer in names() {
        let finished = h.head().producer(&producer).is_some_and(|p| p.finished);
        if finished
            || child.producer(&producer).is_some()
            || rest.iter().any(|(name, _)| *name == producer)
        {
            // Opened twice: nothing that is made once more is forgotten.
            for _ in 0..2 {
                let opened = next.bench().opened(producer.as_str());
                next.fold(vec![opened]);
            }
        }
    }
    for (name, p) in child.producers() {
        let opened = next.head().producer(name).unwrap();
        ensure(opened.again == p.again, || {
            format!("{name}: forgotten at an opening")
        })?;
    }
    let ends = |name: &ProducerName| {
        let finished = h
            .head()
            .producer(name)
            .is_some_and(|p| p.finished && h.head().waiting_of(name) == 0);
        finished.then(|| h.head().producer(name).unwrap().next_seq)
    };
    let mut left: BTreeMap<ProducerName, u64> = BTreeMap::new();
    for (name, _) in &rest {
        *left.entry(name.clone()).or_default() += 1;
    }
    if lanes {
        // In any order: the turns decide.
        for (n, producer) in names().iter().rev().enumerate() {
            while let Some(count) = left.get(producer).copied().filter(|count| *count > 0) {
                let size = u64::from(sizes[n % sizes.len()]) % 4 + 1;
                let size = most(next.head(), producer, size.min(count));
                next.commit(&[(producer, size)]);
                left.insert(producer.clone(), count - size);
            }
            if next.is_open(producer) && ends(producer).is_some() {
                let finish = next.bench().finish(producer.as_str());
                next.fold(vec![finish]);
            }
        }
    } else {
        for (producer, _) in &rest {
            next.commit(&[(producer, 1)]);
        }
    }
    let same = next.steps.len().min(rest.len());
    ensure(next.steps[..same] == rest[..same], || {
        format!("{:?}\nare not {rest:?}", next.steps)
    })?;
    ensure(next.steps.len() >= rest.len(), || {
        format!("only {} of {} steps", next.steps.len(), rest.len())
    })?;
    let (version, bytes) = next.head().snapshot().map_or((0, Vec::new()), |s| s);
    if !bytes.is_empty() {
        let stream = std::sync::Arc::new(child.stream().clone());
        let back = Manifest::from_snapshot(stream, &bytes, version).unwrap();
        assert_eq!(&back, next.head());
    }
    Ok(())
}

fn check(
    order: StreamOrder,
    acts: &[Act],
    again: &[Act],
    sizes: &[u8],
) -> Result<(), TestCaseError> {
    let config = config(order, &["a", "b", "c"]);
    let json = config.to_json();
    let mut h = History::new(Manifest::new(config, &json), Vec::new(), 1);
    for act in acts {
        h.act(*act);
    }
    for step in 0..=h.head().next_step() {
        let (_, child, version) = check_state(&h, step)?;
        check_continued(&h, step, &child, sizes)?;
        // A fork of some forks, at each of their steps.
        if (step + u64::from(sizes[0])) % 4 != 0 {
            continue;
        }
        let inherited = h.mixtures.iter().filter(|m| {
            (m.2 == Version::MAX || m.2 < version as u64)
                && child.mixture().id >= m.0
                && MixtureSpec::read(&child.mixture().spec)
                    .unwrap()
                    .mixtures
                    .iter()
                    .any(|kept| kept.id == m.0)
        });
        let inherited = inherited
            .map(|(id, from, _)| (*id, from.clone(), Version::MAX))
            .collect();
        let mut second = History::new(child, inherited, 1);
        for act in again {
            second.act(*act);
        }
        for step in step..=second.head().next_step() {
            let (_, child, _) = check_state(&second, step)?;
            check_continued(&second, step, &child, sizes)?;
        }
    }
    Ok(())
}

fn run(cases: u32) -> Result<(), String> {
    let acts = |most| proptest::collection::vec(any::<Act>(), 1..most);
    let sizes = proptest::collection::vec(any::<u8>(), 3);
    let order = prop_oneof![Just(StreamOrder::Arrival), Just(StreamOrder::Lanes)];
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    });
    let world = (order, acts(16), acts(7), sizes);
    let ran = runner.run(&world, |(order, first, again, sizes)| {
        check(order, &first, &again, &sizes)
    });
    ran.map_err(|why| why.to_string())
}

#[test]
fn a_fork_of_a_random_log_goes_on_where_the_parent_stood() {
    run(48).unwrap();
}

#[test]
fn each_mistake_in_forks_is_found() {
    for mutation in Mutation::FORKS {
        guards::set(Some(mutation));
        let found = run(400);
        guards::set(None);
        assert!(found.is_err(), "{mutation:?} was not found");
    }
}
