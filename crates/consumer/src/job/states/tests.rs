//! Which states count, and how long they are held.

use std::ops::Range;

use super::known::KNOWN_RANGES_MAX;
use super::*;
use crate::ledger::member;

fn trained(steps: Range<Step>) -> StepStates {
    StepStates {
        from: steps.start,
        to: steps.end,
        left_out: None,
    }
}

fn left_out(steps: Range<Step>, why: &str) -> StepStates {
    StepStates {
        left_out: Some(why.to_owned()),
        ..trained(steps)
    }
}

#[test]
fn the_first_state_of_a_received_step_counts() {
    let mut known = KnownStates::default();
    let (new, counted) = known.accept(&[trained(10..14), left_out(12..16, "nan")], &(10..15));
    assert_eq!(new, [trained(10..14), left_out(14..15, "nan")]);
    let expected = Counted {
        trained: 4,
        left_out: 1,
        twice: 2,
        not_received: 1,
        scattered: 0,
    };
    assert_eq!(counted, expected);
    let (new, counted) = known.accept(&[trained(0..10), trained(15..u64::MAX)], &(10..15));
    assert_eq!((new, counted.not_received), (vec![], 2));
    // A rank that connects again repeats what was not confirmed: that is not twice.
    known.begin();
    let (new, counted) = known.accept(&[trained(10..14), trained(15..16)], &(10..20));
    assert_eq!(new, [trained(15..16)]);
    assert_eq!((counted.trained, counted.twice), (1, 0));
}

#[test]
fn scattered_steps_are_refused_beyond_the_limit_and_others_are_not() {
    let mut known = KnownStates::default();
    let received = 0..1 << 40;
    for n in 0..KNOWN_RANGES_MAX as u64 {
        known.accept(&[trained(2 * n..2 * n + 1)], &received);
    }
    let (new, counted) = known.accept(&[trained(1 << 30..(1 << 30) + 1), trained(1..2)], &received);
    assert_eq!((new, counted.scattered), (vec![trained(1..2)], 1));
    let (new, _) = known.accept(&[trained(1 << 30..(1 << 30) + 1)], &received);
    assert_eq!(new.len(), 1, "a gap was filled");
}

#[test]
fn states_are_held_until_they_are_taken_and_reports_confirmed_once_stored() {
    let states = States::default();
    let (first, second) = (member(0, &[]), member(1, &[]));
    assert!(!states.note(
        7,
        &first,
        vec![trained(100..102), left_out(102..103, "nan")]
    ));
    assert!(!states.note(
        7,
        &first,
        vec![left_out(103..104, "nan"), trained(104..105)]
    ));
    assert!(!states.note(8, &second, vec![]));
    let of = key(&first);
    assert_eq!(states.attempts(false), vec![of.clone()]);
    assert_eq!(states.attempts(true), []);
    let taken = states.take(&of);
    let expected = ReportedStates {
        dp_rank: 0,
        rank: None,
        trained: vec![(100, 102), (104, 105)],
        left_out: vec![(102, 104, "nan".to_owned())],
    };
    assert_eq!(taken.ledgers, [[expected]]);
    assert_eq!(taken.receipts, [(7, 2), (8, 1)]);
    assert_eq!((states.confirm(7), states.confirm(8)), (None, None));
    // Another report comes before they are stored.
    states.note(7, &first, vec![trained(105..106)]);
    states.stored(&taken.receipts);
    assert_eq!((states.confirm(7), states.confirm(7)), (Some(2), None));
    assert_eq!(states.confirm(8), Some(1));
    // The session ends, its states do not.
    states.close(7);
    assert_eq!(states.take(&of).ledgers[0][0].trained, [(105, 106)]);
    assert!(states.take(&of).ledgers.is_empty());
    states.note_nothing(9);
    assert_eq!(states.confirm(9), Some(1));
}

#[test]
fn a_rank_is_not_read_from_while_too_many_of_its_states_wait() {
    let states = States::default();
    let (rank, other) = (member(0, &[]), member(1, &[]));
    states.note(2, &other, vec![trained(100..200)]);
    let all = WAITING_RANGES_MAX as u64;
    let many = (0..all).map(|n| left_out(n..n + 1, &n.to_string()));
    assert!(states.note(1, &rank, many.collect()), "the ledger is due");
    assert!(states.is_full(1) && !states.is_full(2));
    let taken = states.take(&key(&rank));
    assert_eq!(taken.ledgers.len(), 1);
    assert!(!states.is_full(1));
    let many = |n: u32| (0..all).map(move |step| left_out(2 * step..2 * step + 1, &n.to_string()));
    for n in 0..9 {
        states.note(n.into(), &member(n % 4, &[]), many(n).collect());
    }
    let taken = states.take(&key(&rank));
    let ranges = |all: &Vec<ReportedStates>| all.iter().map(ReportedStates::ranges).sum::<usize>();
    assert!(
        taken
            .ledgers
            .iter()
            .all(|ledger| ranges(ledger) <= STATE_RANGES_MAX)
    );
}
