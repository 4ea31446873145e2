//! The fold: orders, fencing, chain, snapshots, and a rejection for each rule.

use proptest::prelude::*;

use super::entry::*;
use super::testing::*;
use super::void::RecordVoid;
use super::*;
use crate::ids::{AttemptId, Hash};
use crate::stream::StreamOrder;

mod admin;
mod bounds;
mod forks;
mod golden;
mod inherited;
mod lanes;
mod rejections;
mod round_trip;
mod stages;

#[test]
fn arrival_numbers_steps_in_log_order() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    b.one(b.opened("p1")).unwrap();
    assert_eq!(placed(&b.commit("p1", 2)), ["0=p1:0", "1=p1:1"]);
    assert_eq!(placed(&b.commit("p0", 1)), ["2=p0:0"]);
    assert_eq!(b.m.next_step(), 3);
    assert_eq!(b.m.open_step(1).unwrap().seq, 1);
    assert_eq!(b.m.end(), None);
}

#[test]
fn two_producers_combine_in_one_record() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    b.one(b.opened("p1")).unwrap();
    let entries = vec![
        Entry::Batch(b.batch("p1", 1)),
        Entry::Batch(b.batch("p0", 2)),
    ];
    assert_eq!(placed(&b.fold(entries)), ["0=p1:0", "1=p0:0", "2=p0:1"]);
}

#[test]
fn lanes_take_turns_in_any_order_of_arrival() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b", "c"]);
    for lane in ["a", "b", "c"] {
        b.one(b.opened(lane)).unwrap();
    }
    assert!(placed(&b.commit("b", 2)).is_empty());
    assert_eq!(b.m.awaited_lane(), Some(&name("a")));
    assert_eq!(placed(&b.commit("a", 2)), ["0=a:0", "1=b:0"]);
    assert_eq!(placed(&b.commit("c", 1)), ["2=c:0", "3=a:1", "4=b:1"]);
    b.one(b.finish("c")).unwrap();
    assert!(placed(&b.commit("b", 1)).is_empty());
    assert_eq!(
        placed(&b.fold(vec![b.finish("a")])),
        ["5=b:2"],
        "finished lanes are passed over"
    );
    b.one(b.finish("b")).unwrap();
    assert_eq!(b.m.end(), Some(6), "the last finish ends the stream");
}

#[test]
fn a_seal_ends_lanes_at_the_first_undecided_turn_and_can_be_undone() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    b.one(b.opened("a")).unwrap();
    b.one(b.opened("b")).unwrap();
    b.commit("b", 1);
    b.one(Entry::Sealed(Sealed {
        request: request(1),
        reason: "enough".into(),
    }))
    .unwrap();
    assert_eq!((b.m.end(), b.m.waiting()), (Some(0), 1));
    assert_eq!(b.one(Entry::Batch(b.batch("a", 1))), Err(Void::Sealed));
    b.one(Entry::Unsealed(Unsealed {
        request: request(2),
        reason: "more".into(),
    }))
    .unwrap();
    assert_eq!(placed(&b.commit("a", 1)), ["0=a:0", "1=b:0"]);
}

#[test]
fn opening_fences_and_keeps_seq_and_cursor() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    b.commit("p0", 3);
    let stale = b.batch("p0", 1);
    b.one(b.opened("p0")).unwrap();
    let state = b.m.producer(&name("p0")).unwrap().clone();
    assert_eq!((state.epoch, state.next_seq), (2, 3));
    let found = b.one(Entry::Batch(stale)).unwrap_err();
    assert!(
        matches!(
            found,
            Void::WrongEpoch {
                current: 2,
                found: 1,
                ..
            }
        ),
        "{found}"
    );
    assert_eq!(placed(&b.commit("p0", 1)), ["3=p0:3"]);
    assert_eq!(b.m.void_entries(), 1);
}

#[test]
fn records_of_another_stream_are_void_as_a_whole() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let other = crate::ids::StreamId::from_random([9; 16]);
    let mut record = b.record(vec![b.opened("p0")]);
    record.stream = other;
    let bytes = record.to_json();
    let before = b.m.clone();
    let folded = b.m.fold(&bytes).unwrap();
    assert_eq!(folded.void, Some(RecordVoid::OtherStream(other)));
    assert_eq!(
        b.m.producer(&name("p0")).unwrap().epoch,
        1,
        "it changed nothing"
    );
    assert_eq!(
        b.m.next_version(),
        before.next_version() + 1,
        "its version is used up"
    );
    assert_eq!(
        b.m.prev(),
        Hash::sha256(&bytes),
        "the chain goes on from its bytes"
    );
    assert_ne!(b.m.view(), before.view());
}

#[test]
fn a_record_of_this_stream_that_does_not_fit_stops_the_fold_and_is_never_void() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    type Break = fn(&mut Record);
    let cases: [(Break, &[&str]); 3] = [
        (
            |r| r.version += 1,
            &["log/00000000000000000001.json", "says version 2"],
        ),
        (
            |r| r.prev = Hash::sha256(b"x"),
            &[
                "log/00000000000000000001.json",
                "log/00000000000000000000.json",
                "restore",
            ],
        ),
        (
            |r| r.view = Hash::sha256(b"x"),
            &["log/00000000000000000001.json", "by test"],
        ),
    ];
    for (break_it, said) in cases {
        let mut copy = b.m.clone();
        let mut record = b.record(vec![b.opened("p0")]);
        break_it(&mut record);
        let stopped = copy.fold(&record.to_json()).unwrap_err().to_string();
        for part in said {
            assert!(stopped.contains(part), "{part}: {stopped}");
        }
        assert_eq!(copy, b.m);
        let folded = copy.fold_repaired(&record.to_json());
        assert_eq!(folded.void, Some(RecordVoid::Repaired));
        assert_eq!(copy.repaired(), [1]);
    }
}

#[test]
fn the_view_differs_where_two_folds_of_the_same_records_differ() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    b.one(b.opened("a")).unwrap();
    b.one(b.opened("b")).unwrap();
    let record = b.record(vec![Entry::Batch(b.batch("a", 2))]).to_json();
    type Twist = fn(&mut Manifest);
    let twists: [Twist; 3] = [
        |m| m.sealed = true,
        |m| m.watermark += 1,
        |m| m.lanes.finish(&name("b")),
    ];
    let mut sound = b.m.clone();
    sound.fold(&record).unwrap();
    for twist in twists {
        let mut twisted = b.m.clone();
        twist(&mut twisted);
        // An invariant of the state may find it first.
        if twisted.fold(&record).is_ok() {
            assert_eq!(twisted.prev(), sound.prev());
            assert_ne!(twisted.view(), sound.view());
        }
    }
    let mut repaired = b.m.clone();
    repaired.fold_repaired(&record);
    assert_eq!(repaired.prev(), sound.prev());
    assert_ne!(repaired.view(), sound.view());
}

#[test]
fn an_unreadable_record_stops_the_fold_and_a_repair_lets_it_go_on() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let unknown = String::from_utf8(b.record(vec![b.opened("p0")]).to_json()).unwrap();
    let newer = unknown.replacen("\"format\":1", "\"format\":2", 1);
    let foreign = unknown.replacen("\"opened\"", "\"teleported\"", 1);
    let foreign = String::from_utf8(crate::json::sign_again(foreign.as_bytes()).unwrap()).unwrap();
    let shorter = unknown.trim_end();
    for bad in [
        &b""[..],
        b"{}",
        b"\xff",
        newer.as_bytes(),
        foreign.as_bytes(),
        shorter.as_bytes(),
    ] {
        let before = b.m.clone();
        let error = b.m.fold(bad).unwrap_err();
        assert!(
            matches!(error, FoldError::Unreadable { version: 1, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("log/00000000000000000001.json"),
            "{error}"
        );
        assert_eq!(b.m, before);
    }
    let folded = b.m.fold_repaired(b"");
    assert_eq!(folded.void, Some(RecordVoid::Repaired));
    assert_eq!(b.one(b.opened("p0")), Ok(()));
}

#[test]
fn full_segments_come_out_and_only_the_open_one_stays() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("p0")).unwrap();
    let mut segments = Vec::new();
    for _ in 0..11 {
        segments.extend(b.commit("p0", 200).segments);
    }
    assert_eq!(segments.len(), 2);
    assert_eq!((b.m.next_step(), b.m.first_open_step()), (2200, 2048));
    assert!(b.m.open_step(2047).is_none());
    let bytes = segments[1].to_json();
    let read = Segment::from_json(&bytes, b.m.stream_id(), 1).unwrap();
    assert_eq!(read.step(1024).unwrap().seq, 1024);
    assert_eq!((read.step(1023), read.step(2048)), (None, None));
    assert!(Segment::from_json(&bytes, b.m.stream_id(), 2).is_err());
    let other = crate::ids::StreamId::from_random([1; 16]);
    assert!(Segment::from_json(&bytes, other, 1).is_err());
}

#[test]
fn snapshots_equal_the_fold_and_wrong_ones_are_refused() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    b.one(b.opened("a")).unwrap();
    b.one(b.opened("b")).unwrap();
    b.commit("b", 3);
    b.commit("a", 1);
    let (version, bytes) = b.m.snapshot().unwrap();
    let stream = std::sync::Arc::new(b.m.stream().clone());
    let read = Manifest::from_snapshot(stream.clone(), &bytes, version).unwrap();
    assert_eq!(read, b.m);
    assert_eq!(read.snapshot().unwrap().1, bytes, "deterministic");
    let text = String::from_utf8(bytes).unwrap();
    assert!(Manifest::from_snapshot(stream.clone(), text.as_bytes(), version + 1).is_err());
    for (from, to) in [
        ("\"next_step\":2", "\"next_step\":3"),
        ("\"watermark\":0", "\"watermark\":9"),
        ("\"turn\":0", "\"turn\":7"),
        ("\"next_seq\":3", "\"next_seq\":4"),
        ("\"epoch\":1,\"nonce\"", "\"epoch\":0,\"nonce\""),
        ("\"format\":1", "\"format\":3"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let broken = text.replacen(from, to, 1);
        let refused = Manifest::from_snapshot(stream.clone(), broken.as_bytes(), version)
            .expect_err(to)
            .to_string();
        // The format is checked first: another one may have another kind of digest.
        let why = if from.contains("format") {
            "format 3 is not known"
        } else {
            "digest"
        };
        assert!(refused.contains(why), "{to}: {refused}");
        // The same with a right digest: the state itself breaks a rule.
        let signed = crate::json::sign_again(broken.as_bytes()).unwrap();
        let refused = Manifest::from_snapshot(stream.clone(), &signed, version)
            .expect_err(to)
            .to_string();
        assert!(!refused.contains("digest"), "{to}: {refused}");
    }
}

#[test]
fn no_flip_and_no_cut_of_a_snapshot_or_segment_is_believed() {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.one(b.opened("a")).unwrap();
    let segments: Vec<_> = (0..6).flat_map(|_| b.commit("a", 200).segments).collect();
    let stream = std::sync::Arc::new(b.m.stream().clone());
    let (version, snapshot) = b.m.snapshot().unwrap();
    let segment = segments[0].to_json();
    let refused = |bytes: &[u8], is_snapshot: bool| {
        if is_snapshot {
            Manifest::from_snapshot(stream.clone(), bytes, version).is_err()
        } else {
            Segment::from_json(bytes, stream.stream_id, 0).is_err()
        }
    };
    for (bytes, is_snapshot) in [(&snapshot, true), (&segment, false)] {
        let every = (bytes.len() / 500).max(1);
        for at in (0..bytes.len())
            .step_by(every)
            .chain(bytes.len() - 90..bytes.len())
        {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(refused(&flipped, is_snapshot), "bit flipped at {at}");
            assert!(refused(&bytes[..at], is_snapshot), "cut at {at}");
        }
        assert!(!refused(bytes, is_snapshot));
    }
}

proptest! {
    /// Any bytes of a record give an error or a verdict, never a panic, and an error changes nothing.
    #[test]
    fn the_fold_never_panics(seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut b = Bench::new(StreamOrder::Arrival, &[]);
        b.one(b.opened("p0")).unwrap();
        let mut bytes = b.record(vec![Entry::Batch(b.batch("p0", 1 + seed % 3))]).to_json();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        if seed % 4 == 0 { bytes.truncate(cut.index(bytes.len())); }
        let before = b.m.clone();
        if b.m.fold(&bytes).is_err() { prop_assert_eq!(b.m, before); }
    }

    /// Any interleaving of two producers with restarts gives dense steps, per-producer order, and a
    /// snapshot from which the fold continues the same.
    #[test]
    fn any_history_is_dense_and_ordered(actions in prop::collection::vec((0..2_usize, 0..5_u64), 1..60), lanes in any::<bool>()) {
        let names = ["p0", "p1"];
        let order = if lanes { StreamOrder::Lanes } else { StreamOrder::Arrival };
        let mut b = Bench::new(order, &names);
        for n in names { b.one(b.opened(n)).unwrap(); }
        let mut steps = Vec::new();
        for (who, tgbs) in actions {
            let folded = if tgbs == 0 { b.fold(vec![b.opened(names[who])]) } else { b.commit(names[who], tgbs) };
            prop_assert!(folded.entries.iter().all(Result::is_ok));
            steps.extend(folded.placed);
            let (version, bytes) = b.m.snapshot().unwrap();
            let again = Manifest::from_snapshot(std::sync::Arc::new(b.m.stream().clone()), &bytes, version).unwrap();
            prop_assert_eq!(&again, &b.m);
        }
        prop_assert!(steps.iter().map(|s| s.step).eq(0..b.m.next_step()));
        for n in names {
            let seqs: Vec<_> = steps.iter().filter(|s| s.producer == name(n)).map(|s| s.seq).collect();
            prop_assert!(seqs.iter().copied().eq(0..seqs.len() as u64));
        }
        if lanes { for (i, s) in steps.iter().enumerate() { prop_assert_eq!(s.producer.as_str(), names[i % 2]); } }
    }
}

fn attempt(n: u8) -> AttemptId {
    AttemptId([n; 16])
}
