//! Bounds: of a snapshot by what is alive, of versions and steps by the numbers that JSON keeps exact.

use std::sync::Arc;

use super::*;
use crate::limits::{NUMBER_MAX, SEGMENT_STEPS, VERSION_LAST};

#[test]
fn a_snapshot_does_not_grow_with_history() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    for name in ["p0", "p1"] {
        b.one(b.opened(name)).unwrap();
    }
    let mut sizes = Vec::new();
    for round in 1..=550_u64 {
        b.commit("p0", 64);
        b.commit("p1", 128);
        // The open segment is equally full every 16 rounds.
        if round % 16 == 6 {
            sizes.push(b.m.snapshot().unwrap().1.len());
        }
        b.records.clear();
    }
    assert!(b.m.next_step() > 100_000);
    let (first, last) = (sizes[2], *sizes.last().unwrap());
    // Numbers have more digits, and nothing else has changed.
    assert!(
        last < first + first / 50,
        "{first} bytes at first, {last} after 100,000 steps"
    );
    assert!(b.m.open_steps.len() as u64 <= SEGMENT_STEPS);
}

/// The bench as if it were at `version`, `next_step` steps behind it.
fn at(b: &Bench, version: u64, next_step: u64) -> Result<Bench, crate::error::FormatError> {
    let (now, bytes) = b.m.snapshot().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let steps = b.m.next_step();
    let text = text
        .replacen(
            &format!("\"version\":{now},"),
            &format!("\"version\":{version},"),
            1,
        )
        .replacen(
            &format!("\"next_step\":{steps},"),
            &format!("\"next_step\":{next_step},"),
            1,
        );
    let signed = crate::json::sign_again(text.as_bytes()).unwrap();
    let stream = Arc::new(b.m.stream().clone());
    let m = Manifest::from_snapshot(stream, &signed, version)?;
    Ok(Bench {
        m,
        records: Vec::new(),
    })
}

#[test]
fn writers_are_refused_while_there_are_versions_left_to_end_the_stream() {
    let mut early = Bench::new(StreamOrder::Arrival, &["p0"]);
    early.one(early.opened("p0")).unwrap();
    let mut b = at(&early, VERSION_LAST - 2, 0).unwrap();
    let entry = Entry::Batch(b.batch("p0", 1));
    assert_eq!(
        b.m.validate(&entry),
        Ok(rules::Validity::Applies),
        "judged before the put"
    );
    assert_eq!(b.one(entry), Ok(()), "and so by the fold");
    assert_eq!(b.m.next_version(), VERSION_LAST);
    let entry = Entry::Batch(b.batch("p0", 1));
    assert_eq!(
        b.m.validate_all(std::slice::from_ref(&entry)),
        [Err(Void::VersionsUsedUp)]
    );
    assert_eq!(b.one(entry), Err(Void::VersionsUsedUp));
    assert_eq!(b.one(b.opened("p0")), Err(Void::VersionsUsedUp));
    assert_eq!(
        b.one(b.finish("p0")),
        Ok(()),
        "what ends the stream is still possible"
    );
    assert_eq!(b.m.end(), Some(1));
}

#[test]
fn there_is_no_record_at_the_last_number() {
    let mut early = Bench::new(StreamOrder::Arrival, &[]);
    early.one(early.opened("p0")).unwrap();
    let mut b = at(&early, NUMBER_MAX - 1, 0).unwrap();
    let seal = Entry::Sealed(Sealed {
        request: request(1),
        reason: String::new(),
    });
    assert_eq!(
        b.m.validate(&seal),
        Err(Void::VersionsUsedUp),
        "no writer puts one"
    );
    let (record, before) = (b.record(Vec::new()).to_json(), b.m.clone());
    assert_eq!(
        b.m.fold(&record),
        Err(FoldError::VersionsUsedUp(NUMBER_MAX))
    );
    assert_eq!(b.m, before);
    for version in [NUMBER_MAX, u64::MAX - 1, u64::MAX] {
        assert!(at(&early, version, 0).is_err(), "{version}");
    }
}

#[test]
fn steps_are_refused_before_their_numbers_end() {
    let mut early = Bench::new(StreamOrder::Arrival, &[]);
    early.one(early.opened("p0")).unwrap();
    let mut b = at(&early, 7, NUMBER_MAX - SEGMENT_STEPS).unwrap();
    assert_eq!(b.one(Entry::Batch(b.batch("p0", 200))), Ok(()));
    for _ in 0..4 {
        b.one(Entry::Batch(b.batch("p0", 200))).unwrap();
    }
    let void = b.one(Entry::Batch(b.batch("p0", 24))).unwrap_err();
    assert_eq!(void, Void::NumberTooLarge { limit: NUMBER_MAX });
    b.one(Entry::Batch(b.batch("p0", 23))).unwrap();
    for steps in [NUMBER_MAX + SEGMENT_STEPS, u64::MAX - (SEGMENT_STEPS - 1)] {
        assert!(at(&early, 7, steps).is_err(), "{steps}");
    }
}
