//! Each deliberate mistake in the code under simulation is found within 300 seeds: those of the
//! commit path in faulty worlds, those of the lifecycle in lifecycle worlds, rare ones in worlds where they matter.

use std::collections::BTreeSet;

use batchweave_core::guards::{Mutation, set};
use batchweave_sim::check::check;
use batchweave_sim::command::faults::{explain, one};
use batchweave_sim::plan::Plan;
use batchweave_sim::store::link::LinkPlan;
use batchweave_sim::world::run;

/// Returns the first seed that finds the mistake, and the checks that do.
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
        // The world itself must break no rule.
        let honest = check(&run(&plan).unwrap());
        assert!(honest.is_empty(), "seed {seed} alone: {}", honest[0].text);
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
    let drawn =
        |mutation: &Mutation| ![Mutation::EarlierMarks, Mutation::FewerThanKept].contains(mutation);
    let all: Vec<_> = Mutation::LIFECYCLE.into_iter().filter(drawn).collect();
    are_found(&all, Plan::draw_lifecycle);
}

/// Jobs that stop soon after a restart: their newest attempt has fewer restart points than they
/// keep.
fn short_attempts(seed: u64) -> Plan {
    let mut plan = Plan::draw_lifecycle(seed);
    for job in plan.life.iter_mut().flat_map(|life| &mut life.jobs) {
        (job.keep, job.mark_every, job.abandons) = (3, 5, Some(32));
        // No job may stop reading while producers wait for it.
        job.paces = false;
    }
    plan
}

#[test]
fn marks_of_earlier_attempts_that_are_not_listed_are_missed() {
    are_found(&[Mutation::EarlierMarks], short_attempts);
}

#[test]
fn fewer_restart_points_than_kept_release_no_step() {
    are_found(&[Mutation::FewerThanKept], short_attempts);
}

/// Jobs whose first rank marks for all, on two machines: when an attempt with fewer ranks begins, the ledgers
/// of the others may lack steps.
fn shrinking_attempts(seed: u64) -> Plan {
    let mut plan = Plan::draw_lifecycle(seed);
    for job in plan.life.iter_mut().flat_map(|life| &mut life.jobs) {
        (job.rank0, job.paces, job.mark_every) = (true, false, 2);
        let machine = job.daemons.first().cloned().unwrap_or_default();
        job.daemons.resize(2, machine);
        for attempt in &mut job.attempts {
            attempt.dp_size = 4;
        }
    }
    plan
}

#[test]
fn holes_of_earlier_attempts_that_are_left_are_found() {
    are_found(&[Mutation::EarlierHoles], shrinking_attempts);
}

#[test]
fn every_mistake_of_the_consumer_is_found() {
    let drawn = |mutation: &Mutation| *mutation != Mutation::EarlierHoles;
    let all: Vec<_> = Mutation::CONSUMER.into_iter().filter(drawn).collect();
    are_found(&all, Plan::draw_lifecycle);
}

/// A failing world is made smaller, and its story names the broken rule and the requests.
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
