//! Each rule of a producer's entries, broken exactly once.

use serde_json::json;

use super::*;
use crate::cursor::Cursor;
use crate::limits::{CURSOR_BYTES_MAX, ENTRY_TGBS_MAX, NUMBER_MAX, TGB_ROWS_MAX};

fn bench() -> Bench {
    let mut b = Bench::new(StreamOrder::Arrival, &["p0", "p1"]);
    b.one(b.opened("p0")).unwrap();
    b.commit("p0", 2);
    b
}

/// Gives the first TGB's object another range of sequence numbers.
fn own_range(e: &mut BatchEntry, from: &str, to: &str) {
    let key = &mut e.tgbs[0].parts[0].key;
    let other = key.replacen(&format!("0{from}"), &format!("0{to}"), 1);
    assert_ne!(*key, other);
    *key = other;
}

#[test]
fn objects_of_another_range_are_found() {
    use crate::guards::{Mutation, set};
    set(Some(Mutation::ObjectRange));
    let outcome = std::panic::catch_unwind(a_batch_is_refused_for_each_broken_rule);
    set(None);
    assert!(outcome.is_err());
}

#[test]
fn a_batch_is_refused_for_each_broken_rule() {
    type Break = fn(&mut BatchEntry);
    let cases: Vec<(&str, Break)> = vec![
        ("was never opened", |e| e.producer = name("p1")),
        ("is not the current one", |e| e.epoch += 1),
        ("is not the next one", |e| e.first_seq -= 1),
        ("is not the next one", |e| e.first_seq += 1),
        ("does not fit", |e| e.last_seq += 1),
        ("does not fit", |e| e.last_seq = 0),
        ("does not fit", |e| e.tgbs.clear()),
        ("larger than", |e| e.last_seq = NUMBER_MAX),
        ("more than an entry", |e| {
            e.last_seq = e.first_seq + ENTRY_TGBS_MAX as u64;
            e.tgbs = vec![e.tgbs[0].clone(); ENTRY_TGBS_MAX + 1];
        }),
        ("the cursor before", |e| {
            e.cursor_before = Hash::sha256(b"elsewhere")
        }),
        ("the cursor after", |e| {
            e.cursor = Cursor(json!("x".repeat(CURSOR_BYTES_MAX)))
        }),
        ("mixture 1", |e| e.mixture = 1),
        ("not in the folder", |e| {
            e.tgbs[0].parts[0].key = "data/p0/9-00/x.tgb".into()
        }),
        ("not in the folder", |e| e.tgbs[0].parts[0].key.push('x')),
        ("outside of sequence", |e| {
            e.tgbs.pop();
            e.last_seq -= 1;
        }),
        ("outside of sequence", |e| own_range(e, "2-", "1-")),
        ("outside of sequence", |e| own_range(e, "2-", "3-")),
        ("rows and at most", |e| e.tgbs[0].rows = TGB_ROWS_MAX + 1),
        ("parts, not 0", |e| e.tgbs[0].parts.clear()),
        ("starts at slice 1", |e| e.tgbs[1].parts[0].first_slice = 1),
        ("slices, not 0", |e| e.tgbs[1].parts[0].slices = 0),
        ("hold 3 slices", |e| {
            let part = &mut e.tgbs[1].parts[0];
            (part.slices, part.length) = (3, 768);
        }),
        ("do not fit", |e| e.tgbs[1].parts[0].length = 0),
        ("the largest object", |e| {
            e.tgbs[1].parts[0].offset = u64::MAX - 63
        }),
        ("do not fit", |e| e.tgbs[1].parts[0].frame_bytes = Some(512)),
        ("provenance key", |e| {
            e.tgbs[1].provenance = Some("x".repeat(2000))
        }),
        ("the log gives Some(2)", |e| e.first_step = Some(5)),
    ];
    let b = bench();
    assert_eq!(
        b.m.validate(&Entry::Batch(b.batch("p0", 2))),
        Ok(rules::Validity::Applies)
    );
    for (message, break_it) in cases {
        let mut entry = b.batch("p0", 2);
        break_it(&mut entry);
        let mut copy = Bench {
            m: b.m.clone(),
            records: Vec::new(),
        };
        let void = copy
            .one(Entry::Batch(entry))
            .expect_err(message)
            .to_string();
        assert!(void.contains(message), "{message:?} in {void:?}");
        assert_eq!(
            copy.m.next_step(),
            2,
            "a void entry changes nothing: {message}"
        );
        assert_eq!(copy.m.void_entries(), 1);
    }
}

#[test]
fn an_entry_too_large_is_void_even_in_a_record_that_fits() {
    let b = bench();
    let mut entry = b.batch("p0", 200);
    for tgb in &mut entry.tgbs {
        tgb.provenance = Some("x".repeat(500));
    }
    let mut copy = Bench {
        m: b.m.clone(),
        records: Vec::new(),
    };
    let void = copy.one(Entry::Batch(entry)).unwrap_err();
    assert!(matches!(void, Void::TooLarge { .. }), "{void}");
}

#[test]
fn a_right_assertion_of_the_step_holds() {
    let mut b = bench();
    let mut entry = b.batch("p0", 1);
    entry.first_step = Some(2);
    b.one(Entry::Batch(entry)).unwrap();
}

#[test]
fn openings_are_refused_for_each_broken_rule() {
    let mut b = bench();
    let Entry::Opened(good) = b.opened("p0") else {
        unreachable!()
    };
    for epoch in [0, 1, 3, u64::MAX] {
        let void = b
            .one(Entry::Opened(Opened {
                epoch,
                ..good.clone()
            }))
            .unwrap_err();
        assert!(
            matches!(void, Void::WrongEpoch { current: 1, .. }),
            "{void}"
        );
    }
    let void = b.one(b.opened("stranger")).unwrap_err();
    assert!(matches!(void, Void::NotNamed(_)), "{void}");
    let long = Opened {
        instance: "x".repeat(5000),
        ..good
    };
    assert!(matches!(
        b.one(Entry::Opened(long)),
        Err(Void::TextTooLong { .. })
    ));
}

#[test]
fn finishing_needs_the_final_sequence_and_is_for_ever() {
    let mut b = bench();
    let Entry::Finished(good) = b.finish("p0") else {
        unreachable!()
    };
    let early = Finished {
        final_seq: 1,
        ..good.clone()
    };
    assert!(matches!(
        b.one(Entry::Finished(early)),
        Err(Void::WrongSeq { .. })
    ));
    let next = b.batch("p0", 1);
    b.one(Entry::Finished(good.clone())).unwrap();
    assert_eq!(
        b.one(Entry::Finished(good)),
        Err(Void::Finished(name("p0")))
    );
    assert_eq!(b.one(Entry::Batch(next)), Err(Void::Finished(name("p0"))));
    assert_eq!(b.one(b.opened("p0")), Err(Void::Finished(name("p0"))));
    assert_eq!(b.m.end(), None, "p1 has not finished");
}

#[test]
fn a_retired_epoch_is_over_but_the_name_can_be_opened_again() {
    let mut b = bench();
    let late = b.batch("p0", 1);
    let retired = Retired {
        request: request(1),
        producer: name("p0"),
        epoch: 1,
        reason: "its machine is gone".into(),
    };
    b.one(Entry::Retired(Retired {
        epoch: 2,
        ..retired.clone()
    }))
    .unwrap_err();
    b.one(Entry::Retired(retired.clone())).unwrap();
    assert!(matches!(
        b.one(Entry::Batch(late)),
        Err(Void::Retired { epoch: 1, .. })
    ));
    b.one(b.opened("p0")).unwrap();
    b.one(Entry::Batch(b.batch("p0", 1))).unwrap();
}
