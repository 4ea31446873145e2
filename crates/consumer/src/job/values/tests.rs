//! Which values are kept, and the objects that they are sealed into.

use batchweave_core::ids::StreamId;
use prometheus::Registry;

use super::*;
use crate::ledger::member;

const STREAM: StreamId = StreamId([7; 16]);

fn metrics() -> Metrics {
    Metrics::new(&Registry::new()).unwrap()
}

fn values(step: u64, sources: usize, details: usize) -> wire::StepValues {
    let source = |source| wire::SourceLoss {
        source: source as u16,
        sum: 1.0,
        weight: 2.0,
    };
    let detail = wire::DetailLoss {
        mean: 0.5,
        weight: 2.0,
    };
    wire::StepValues {
        step,
        sum: 6.0,
        weight: 4.0,
        of: wire::DetailOf::Row,
        sources: (0..sources).map(source).collect(),
        details: vec![detail; details],
        ..wire::StepValues::default()
    }
}

/// Takes the objects that wait to be stored.
fn sealed(all: &Values, member: &Member) -> Vec<ValuesObject> {
    let mut objects = Vec::new();
    while let Some((key, body, _)) = all.next() {
        objects.push(ValuesObject::decode(&body, &key, STREAM, member.id).unwrap());
        all.done();
    }
    objects
}

#[test]
fn values_of_all_ranks_of_an_attempt_are_sealed_into_one_object() {
    let (all, metrics) = (Values::default(), metrics());
    let ranks = [member(1, &[]), member(0, &[])];
    for rank in &ranks {
        let steps = [9, 3].map(|step| values(step, 1, 0));
        assert!(!all.note(rank, steps.into_iter(), &metrics));
    }
    let key = key(&ranks[0]);
    assert_eq!(all.attempts(), std::slice::from_ref(&key));
    all.seal(&key, STREAM, "a1");
    all.seal(&key, STREAM, "a1");
    let (name, _, steps) = all.next().unwrap();
    assert_eq!(
        name,
        "jobs/llm@3/1/reports/000000000003-000000000009-a1.0.bwr"
    );
    assert_eq!(steps, 4);
    let objects = sealed(&all, &ranks[0]);
    assert_eq!(objects.len(), 1);
    let found: Vec<_> = objects[0]
        .blocks
        .iter()
        .map(|block| {
            let steps: Vec<u64> = block.steps.iter().map(|one| one.step).collect();
            (block.dp_rank, block.first_slice, block.slices, steps)
        })
        .collect();
    assert_eq!(found, [(0, 0, 2, vec![3, 9]), (1, 2, 2, vec![3, 9])]);
    assert_eq!(all.inner().bytes, 0);
    all.note(&ranks[0], [values(11, 0, 0)].into_iter(), &metrics);
    all.seal(&key, STREAM, "a1");
    assert!(
        all.next()
            .unwrap()
            .0
            .ends_with("/000000000011-000000000011-a1.1.bwr")
    );
}

#[test]
fn beyond_the_bound_rows_are_dropped_first_then_sources_then_steps() {
    let (all, metrics) = (Values::default(), metrics());
    let rank = member(0, &[]);
    let outcome = |name| metrics.values.with_label_values(&[name]).get();
    let large = values(0, 256, 7168);
    let fit = (BYTES_MAX / kept(large.clone()).stored_bytes()) as u64;
    let note = |step, sources, details| {
        let one = wire::StepValues {
            step,
            ..values(step, sources, details)
        };
        all.note(&rank, [one].into_iter(), &metrics)
    };
    assert!((0..fit).any(|step| note(step, 256, 7168)));
    let noted = all.inner().attempts[&key(&rank)]
        .blocks
        .values()
        .next()
        .unwrap()
        .steps
        .len() as u64;
    (noted..fit).for_each(|step| assert!(note(step, 256, 7168), "it stays due"));
    assert_eq!(outcome("kept"), fit);
    // Sealing frees nothing: the object is still in memory.
    all.seal(&key(&rank), STREAM, "a1");
    let mut step = fit;
    while outcome("dropped") == 0 {
        note(step, 256, 7168);
        step += 1;
        assert!(all.inner().bytes <= BYTES_MAX);
    }
    assert!(outcome("cut") > 2, "{}", outcome("cut"));
    all.seal(&key(&rank), STREAM, "a1");
    let objects = sealed(&all, &rank);
    assert_eq!(objects[0].blocks[0].steps.len() as u64, fit);
    let cut = &objects[1].blocks[0].steps;
    assert!(
        cut.iter()
            .all(|one| one.details.is_empty() && one.details_dropped)
    );
    assert_eq!((cut[0].sources.len(), cut[0].sources_dropped), (256, false));
    let last = cut.last().unwrap();
    assert_eq!((last.sources.len(), last.sources_dropped), (0, true));
    assert_eq!(all.inner().bytes, 0);
    note(step, 256, 7168);
    assert_eq!(outcome("kept"), fit + 1);
}

#[test]
fn reports_are_confirmed_once_the_objects_with_their_values_are_stored() {
    let (all, metrics) = (Values::default(), metrics());
    let rank = member(0, &[]);
    assert_eq!(all.states_stored(all.next_number(), vec![(7, 1)]), [(7, 1)]);
    for step in 0..2 {
        all.note(&rank, [values(step, 1, 0)].into_iter(), &metrics);
        all.seal(&key(&rank), STREAM, "a1");
        assert_eq!(
            all.states_stored(all.next_number(), vec![(7, 2 + step)]),
            []
        );
    }
    // Values of later reports delay none.
    all.note(&rank, [values(2, 1, 0)].into_iter(), &metrics);
    all.seal(&key(&rank), STREAM, "a1");
    assert_eq!(all.done(), [(7, 2)]);
    assert_eq!(all.done(), [(7, 3)]);
    assert_eq!(all.done(), []);
}
