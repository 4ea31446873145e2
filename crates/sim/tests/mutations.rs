//! Each deliberate mistake in the code under simulation is found within 300 seeds: those of the
//! commit path in faulty worlds, those of the lifecycle in lifecycle worlds. Built only by
//! `make mutations`, with the feature of the same name and a target folder of its own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]
#![cfg(feature = "mutations")]

use std::collections::BTreeSet;

use batchweave_core::mutation::{Mutation, set};
use batchweave_sim::check::check;
use batchweave_sim::command::faults::{explain, one};
use batchweave_sim::link::LinkPlan;
use batchweave_sim::world::{Plan, run};

/// The first seed that finds the mistake, and by which checks.
fn found_by(mutation: Mutation, worlds: fn(u64) -> Plan) -> Option<(u64, String, String)> {
    (0..300).find_map(|seed| {
        set(Some(mutation));
        let mut plan = worlds(seed);
        plan.link = LinkPlan::default();
        let evidence = run(&plan).unwrap();
        // The checks fold, too: without the mistake.
        set(None);
        let found = check(&evidence);
        let first = found.first()?;
        let checks: BTreeSet<_> = found.iter().map(|v| v.check).collect();
        let checks: Vec<_> = checks.into_iter().collect();
        Some((seed, checks.join(", "), first.text.clone()))
    })
}

fn are_found(mutations: &[Mutation], worlds: fn(u64) -> Plan) {
    let mut missed = Vec::new();
    for mutation in mutations.iter().copied() {
        match found_by(mutation, worlds) {
            Some((seed, check, text)) => {
                println!("{mutation:?}: seed {seed}, by {check}: {text}");
            }
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not found within 300 seeds: {missed:?}");
}

#[test]
fn every_mistake_is_found() {
    are_found(&Mutation::ALL, Plan::draw);
}

#[test]
fn every_mistake_of_the_lifecycle_is_found() {
    are_found(&Mutation::LIFECYCLE, Plan::draw_life);
}

/// A failing world is made smaller, and its story says what was broken and by which requests.
#[test]
fn a_failing_world_is_explained() {
    set(Some(Mutation::NextAfterUnknown));
    let (evidence, violations) = (0..300)
        .map(|seed| one(seed).unwrap())
        .find(|(_, violations)| !violations.is_empty())
        .unwrap();
    let story = explain(evidence, violations).unwrap();
    set(None);
    println!("{story}");
    for part in [
        "the smallest world found",
        "sends create log/",
        "what led there",
    ] {
        assert!(story.contains(part), "{part}");
    }
}
