//! The reports of ranks against the steps that need a state.

use super::*;
use crate::ids::AttemptId;
use crate::manifest::state::AttemptState;

fn attempt(dp_size: u32, skips: &[(Step, Step)]) -> AttemptRecord {
    AttemptRecord {
        state: AttemptState {
            number: 2,
            id: AttemptId([1; 16]),
            opened: 9,
            parent: None,
            start: 10,
            dp_size,
            mesh: Vec::new(),
            head: None,
        },
        inherited: None,
        skips: skips.iter().map(|(a, b)| *a..*b).collect(),
    }
}

fn states(
    dp_rank: u32,
    trained: &[(Step, Step)],
    left_out: &[(Step, Step, &str)],
) -> ReportedStates {
    let left_out = left_out.iter().map(|(a, b, why)| (*a, *b, (*why).into()));
    ReportedStates {
        dp_rank,
        rank: None,
        trained: trained.to_vec(),
        left_out: left_out.collect(),
    }
}

fn of(dp_rank: u32, steps: Range<Step>) -> CoordinateSteps {
    CoordinateSteps { dp_rank, steps }
}

#[test]
fn missing_states_are_named_by_coordinate_and_left_out_steps_are_listed() {
    let attempt = attempt(2, &[(14, 16)]);
    let mut training = LegTraining::new(&attempt);
    let (first, second) = (
        states(0, &[(10, 12), (13, 14)], &[]),
        states(0, &[(16, 30)], &[]),
    );
    training
        .add("a", &[first, states(1, &[(10, 14)], &[(16, 18, "nan")])])
        .unwrap();
    training
        .add("b", &[second, states(1, &[(18, 25)], &[])])
        .unwrap();
    let found = training.finish(10, 20);
    assert_eq!(found.missing, [of(0, 12..13)], "14 and 15 are quarantined");
    let left = LeftOut {
        dp_rank: 1,
        steps: 16..18,
        reason: "nan".into(),
    };
    assert_eq!(found.left_out, [left]);
    assert_eq!((found.trained, found.reported), (8 - 3, 25));
    assert_eq!(found.differing, []);
    // Beyond the last mark nothing is required.
    assert_eq!(training.finish(10, 12).missing, []);
    assert_eq!(
        training.finish(10, 28).missing,
        [of(0, 12..13), of(1, 25..28)]
    );
    assert_eq!(training.finish(10, 10).reported, 12);
}

#[test]
fn repeated_states_count_once_and_ranks_that_differ_are_named() {
    let attempt = attempt(1, &[]);
    let mut training = LegTraining::new(&attempt);
    training
        .add("a", &[states(0, &[(10, 13)], &[(13, 15, "nan")])])
        .unwrap();
    // Another daemon stored them again; another rank of the coordinate says something else.
    training
        .add("b", &[states(0, &[], &[(13, 16, "inf")])])
        .unwrap();
    training.add("c", &[states(0, &[(12, 14)], &[])]).unwrap();
    let found = training.finish(10, 16);
    assert_eq!(found.missing, []);
    assert_eq!(found.differing, [of(0, 13..14)]);
    let reasons: Vec<_> = found
        .left_out
        .iter()
        .map(|l| (l.steps.clone(), &*l.reason))
        .collect();
    assert_eq!(reasons, [(13..15, "nan"), (15..16, "inf")]);
    assert_eq!(found.trained, 3);
}

#[test]
fn a_coordinate_that_the_attempt_does_not_have_is_a_contradiction() {
    let attempt = attempt(2, &[]);
    let why = LegTraining::new(&attempt).add("key", &[states(2, &[(10, 11)], &[])]);
    let why = why.unwrap_err().to_string();
    assert!(
        why.contains("coordinate 2") && why.contains("2 coordinates"),
        "{why}"
    );
}

#[test]
fn without_reports_all_steps_lack_a_state() {
    let attempt = attempt(2, &[]);
    let found = LegTraining::new(&attempt).finish(10, 20);
    assert_eq!(found.missing, [of(0, 10..20), of(1, 10..20)]);
    assert_eq!((found.trained, found.reported), (0, 20));
}
