//! Each fault of a mark, by its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::AttemptId;
use batchweave_core::manifest::state::{AttemptState, JobState};

use super::*;
use crate::quarantine::QuarantineRanges;

const STREAM: StreamId = StreamId([7; 16]);

fn member() -> Member {
    Member {
        job: "llm".parse().unwrap(),
        opened: 3,
        attempt: 1,
        id: AttemptId([1; 16]),
        parent: None,
        start: 100,
        dp_rank: 2,
        dp_size: 4,
        rank: None,
        shared: false,
        slices: 2..3,
        quarantine: Arc::default(),
    }
}

fn head() -> Head {
    let attempt = |number: u64| AttemptState {
        number,
        id: AttemptId([number as u8; 16]),
        opened: 4 + number,
        parent: None,
        start: 100 * number,
        dp_size: 4,
        mesh: Vec::new(),
        head: None,
    };
    let job = JobState {
        opened: 3,
        start: 0,
        keep: 2,
        holds: true,
        paces: true,
        lease_seconds: None,
        attempts: vec![attempt(0), attempt(1)],
    };
    Head {
        watermark: 120,
        next_step: 200,
        jobs: BTreeMap::from([("llm".parse().unwrap(), job)]),
        ..Head::default()
    }
}

fn made(step: Step, attempt: u8) -> Checkpoint {
    let id = AttemptId([attempt; 16]);
    let state = format!(
        r#"{{"format":1,"stream_id":"{STREAM}","next_step":{step},"attempt":"{id}","world":4}}"#
    );
    Checkpoint { step, state }
}

fn refused(member: &Member, made: &Checkpoint) -> (Option<ErrorName>, String) {
    let fault = validate(member, 150, &head(), made, STREAM).expect_err("must be refused");
    assert_eq!(fault.step, Some(made.step));
    (fault.known_name(), fault.to_string())
}

#[test]
fn each_wrong_mark_has_its_name() {
    for good in [120, 149, 150] {
        let validated = validate(&member(), 150, &head(), &made(good, 1), STREAM);
        assert_eq!(validated, Ok(()), "{good}");
    }
    let name = |made: &Checkpoint| refused(&member(), made).0;
    assert_eq!(name(&made(151, 1)), Some(ErrorName::MarkNotDelivered));
    assert_eq!(name(&made(201, 1)), Some(ErrorName::MarkInFuture));
    assert_eq!(name(&made(140, 0)), Some(ErrorName::MarkOtherAttempt));
    assert_eq!(name(&made(99, 1)), Some(ErrorName::MarkOtherAttempt));
    assert_eq!(name(&made(110, 1)), Some(ErrorName::StepReclaimed));
    let outside = Member {
        dp_rank: 4,
        ..member()
    };
    let (name_of, text) = refused(&outside, &made(140, 1));
    assert_eq!(name_of, Some(ErrorName::MarkNoSuchRank));
    assert!(text.contains("ranks 0 to 3"), "{text}");

    let with = |state: &str| Checkpoint {
        step: 140,
        state: state.into(),
    };
    let text = made(140, 1).state;
    for (bad, says) in [
        ("no JSON".to_owned(), "not readable"),
        (text.replace(":1,", ":2,"), "format 2"),
        (text.replace("07070707-", "08080808-"), "is of stream 0808"),
        (text.replace("140", "141"), "stands at step 141, not at 140"),
    ] {
        let (name, text) = refused(&member(), &with(&bad));
        assert_eq!(name, Some(ErrorName::MarkBadState));
        assert!(text.contains(says), "{text}");
    }
    let none = text.replace("\"0101", "\"x").replace(&"01".repeat(14), "");
    assert_eq!(
        refused(&member(), &with(&none)).0,
        Some(ErrorName::MarkOtherAttempt)
    );
}

/// A rank behind a range that is quarantined ahead of time is beyond the stream's head.
#[test]
fn a_mark_behind_a_range_that_lies_ahead_is_not_in_the_future() {
    let over = |ranges: &[(Step, Step)]| Member {
        quarantine: Arc::new(QuarantineRanges::from_ranges(ranges)),
        ..member()
    };
    let validated = |member: &Member, step| validate(member, step, &head(), &made(step, 1), STREAM);
    assert_eq!(validated(&over(&[(190, 249)]), 250), Ok(()));
    for (ranges, step) in [(&[(190, 249)][..], 251), (&[(201, 249)], 250), (&[], 201)] {
        let fault = validated(&over(ranges), step).unwrap_err();
        assert_eq!(fault.known_name(), Some(ErrorName::MarkInFuture));
    }
}

#[test]
fn under_rank0_one_speaks_for_all() {
    let stored = |dp_rank, policy| {
        let member = Member {
            dp_rank,
            ..member()
        };
        mark_for(&member, &made(140, 1), policy, STREAM).map(|mark| mark.key())
    };
    let key = |name: &str| Some(format!("jobs/llm@3/1/marks/000000000140-{name}.json"));
    assert_eq!(stored(2, Checkpoints::All), key("2"));
    assert_eq!(stored(0, Checkpoints::All), key("0"));
    assert_eq!(stored(0, Checkpoints::Rank0), key("all"));
    assert_eq!(stored(2, Checkpoints::Rank0), None);
}
