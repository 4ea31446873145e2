//! The stored form of losses, and which of several reports count.

use std::ops::Range;

use super::*;
use crate::error::FormatError;
use crate::ids::{AttemptId, StreamId};

const STREAM: StreamId = StreamId([7; 16]);
const ATTEMPT: AttemptId = AttemptId([9; 16]);
const KEY: &str = "jobs/llm@4/3/reports/000000000010-000000000013-a1.0.bwr";

fn values(step: Step, sum: f64) -> StepValues {
    StepValues {
        step,
        sum,
        weight: 4.0,
        ..StepValues::default()
    }
}

fn block(dp_rank: u32, rank: Option<u32>, steps: Vec<StepValues>) -> ValuesBlock {
    ValuesBlock {
        dp_rank,
        rank,
        first_slice: dp_rank * 2,
        slices: 2,
        steps,
        ..ValuesBlock::default()
    }
}

fn object(blocks: Vec<ValuesBlock>) -> ValuesObject {
    ValuesObject {
        stream: STREAM,
        attempt: ATTEMPT,
        blocks,
    }
}

/// An object with everything.
fn full() -> ValuesObject {
    let mut first = values(10, 12.5);
    first.nonfinite = 3;
    first.sources = vec![
        SourceLoss {
            source: 0,
            sum: 2.5,
            weight: 1.0,
        },
        SourceLoss {
            source: 300,
            sum: 10.0,
            weight: 3.0,
        },
    ];
    let mut second = values(12, -1.0);
    second.details = vec![
        DetailLoss {
            mean: 0.5,
            weight: 2.0,
        },
        DetailLoss {
            mean: -1.0,
            weight: 2.0,
        },
    ];
    second.sources_dropped = true;
    let mut third = values(13, 0.0);
    third.details_dropped = true;
    let rows = ValuesBlock {
        of: DetailOf::Row,
        part: true,
        ..block(1, Some(5), vec![second, third])
    };
    object(vec![block(0, None, vec![first]), rows])
}

fn refused(bytes: &[u8]) -> String {
    let read = ValuesObject::decode(bytes, KEY, STREAM, ATTEMPT);
    match read.unwrap_err() {
        FormatError::Rule { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// Returns the bytes with the right checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crate::crc::crc32c(&bytes[12..]).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
    bytes
}

#[test]
fn an_object_is_read_as_it_was_written_within_the_promised_bytes() {
    let object = full();
    let bytes = object.encode();
    assert_eq!(bytes.len(), 64 + 2 * 32 + 3 * 24 + 2 * 12 + 2 * 8);
    let read = ValuesObject::decode(&bytes, KEY, STREAM, ATTEMPT).unwrap();
    assert_eq!(read, object);
    assert_eq!(read.steps(), (10, 13));
}

#[test]
fn each_changed_byte_and_each_cut_is_detected() {
    let bytes = full().encode();
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x10;
        refused(&other);
        refused(&bytes[..at]);
    }
    let mut longer = bytes;
    longer.push(0);
    refused(&longer);
}

#[test]
fn objects_of_other_streams_and_attempts_are_refused() {
    let bytes = full().encode();
    let other = ValuesObject::decode(&bytes, KEY, StreamId([8; 16]), ATTEMPT).unwrap_err();
    assert!(
        other.to_string().contains("belongs to stream 07070707-"),
        "{other}"
    );
    let other = ValuesObject::decode(&bytes, KEY, STREAM, AttemptId([1; 16])).unwrap_err();
    assert!(
        other.to_string().contains("belongs to attempt 0909"),
        "{other}"
    );
}

#[test]
fn broken_rules_are_named() {
    type Change = fn(&mut ValuesObject);
    let cases: [(Change, &str); 9] = [
        (|o| o.blocks.reverse(), "not in order, each once"),
        (
            |o| o.blocks[1] = o.blocks[0].clone(),
            "not in order, each once",
        ),
        (|o| o.blocks.clear(), "number of blocks"),
        (
            |o| o.blocks[1].first_slice = 3,
            "coordinate 1 has 2 steps of 2 slices from slice 3",
        ),
        (
            |o| o.blocks[1].steps.swap(0, 1),
            "steps of coordinate 1 are not in order",
        ),
        (
            |o| o.blocks[1].of = DetailOf::None,
            "step 12 has details of no kind",
        ),
        (
            |o| o.blocks[0].steps[0].sources.swap(0, 1),
            "sources of step 10 are not in order",
        ),
        (
            |o| o.blocks[0].steps[0].sum = f64::NAN,
            "step 10 has a sum that is not finite",
        ),
        (|o| o.blocks[0].steps[0].weight = -1.0, "at least 0"),
    ];
    for (change, expected) in cases {
        let mut object = full();
        change(&mut object);
        let reason = refused(&object.encode());
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
    for (at, byte, expected) in [
        (56, 14, "last step"),
        (64 + 20, 3, "unknown kind"),
        (64 + 24, 1, "reserved"),
    ] {
        let mut bytes = full().encode();
        bytes[at] = byte;
        let reason = refused(&sealed(bytes));
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
    let mut many = values(1, 0.0);
    many.details = vec![
        DetailLoss {
            mean: 0.0,
            weight: 1.0
        };
        VALUE_DETAILS_MAX + 1
    ];
    assert!(many.check().unwrap_err().contains("7169 rows or documents"));
}

/// Step, coordinate, sum and weight of what counts.
fn counted(objects: Vec<ValuesObject>, steps: Range<Step>) -> Vec<(Step, u32, f64, f64)> {
    let mut merged = MergedValues::default();
    for object in objects {
        merged.add(object, &steps);
    }
    let all = merged.take_below(Step::MAX).into_iter();
    all.map(|one| (one.step, one.dp_rank, one.loss.sum, one.loss.weight))
        .collect()
}

#[test]
fn of_each_coordinate_the_lowest_rank_counts_and_of_each_rank_the_first_object() {
    let objects = vec![
        object(vec![
            block(0, Some(3), vec![values(5, 1.0)]),
            block(1, Some(4), vec![values(5, 7.0)]),
        ]),
        object(vec![block(
            0,
            Some(1),
            vec![values(5, 2.0), values(6, 3.0)],
        )]),
        object(vec![block(
            0,
            Some(1),
            vec![values(5, 9.0), values(9, 3.0)],
        )]),
    ];
    let expected = [(5, 0, 2.0, 4.0), (5, 1, 7.0, 4.0), (6, 0, 3.0, 4.0)];
    assert_eq!(counted(objects, 5..9), expected);
}

#[test]
fn parts_of_a_coordinate_are_added() {
    let part = |rank, sum, mean| {
        let mut one = values(5, sum);
        one.sources = vec![SourceLoss {
            source: 2,
            sum: sum as f32,
            weight: 4.0,
        }];
        one.details = vec![DetailLoss { mean, weight: 4.0 }];
        ValuesBlock {
            part: true,
            of: DetailOf::Row,
            ..block(0, Some(rank), vec![one])
        }
    };
    let mut whole = part(9, 100.0, 0.0);
    whole.part = false;
    let mut merged = MergedValues::default();
    merged.add(
        object(vec![part(0, 1.0, 0.5), part(1, 3.0, 1.5), whole]),
        &(0..9),
    );
    let all = merged.take_below(5);
    assert!(all.is_empty(), "{all:?}");
    let all = merged.take_below(6);
    assert_eq!((all[0].loss.sum, all[0].loss.weight), (4.0, 8.0));
    assert_eq!(all[0].loss.sources[&2], (4.0, 8.0));
    assert_eq!(all[0].loss.details, [(8.0, 8.0)]);
    assert!(!all[0].loss.details_dropped);
}

#[test]
fn parts_with_different_details_have_none_and_say_so() {
    let part = |rank, rows| {
        let mut one = values(5, 1.0);
        one.details = vec![
            DetailLoss {
                mean: 0.5,
                weight: 4.0
            };
            rows
        ];
        ValuesBlock {
            part: true,
            of: DetailOf::Row,
            ..block(0, Some(rank), vec![one])
        }
    };
    let mut merged = MergedValues::default();
    merged.add(object(vec![part(0, 1), part(1, 2)]), &(0..9));
    let loss = merged.take_below(9).remove(0).loss;
    assert!(loss.details.is_empty() && loss.details_dropped);
    assert!((loss.weight - 8.0).abs() < f64::EPSILON);
}

/// Made from docs/format.md by other code; never changed.
#[test]
fn the_golden_object_is_read_and_written_byte_for_byte() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
    let bytes = std::fs::read(format!("{folder}/values-v1.bwr")).unwrap();
    let stream = std::fs::read_to_string(format!("{folder}/stream-v1.json")).unwrap();
    let stream: serde_json::Value = serde_json::from_str(&stream).unwrap();
    let stream = stream["stream_id"].as_str().unwrap().parse().unwrap();
    let key = "jobs/llm@12/3/reports/000000000498-000000000510-0f.0.bwr";
    let object = ValuesObject::decode(&bytes, key, stream, AttemptId([0xcd; 16])).unwrap();
    assert_eq!(object.encode(), bytes);
    assert_eq!((object.steps(), object.blocks.len()), ((498, 510), 3));
    let [first, second, third] = &object.blocks[..] else {
        panic!("{object:?}");
    };
    assert_eq!(
        (first.rank, first.of, first.part),
        (None, DetailOf::None, false)
    );
    assert_eq!(
        first.steps[0].sources[1],
        SourceLoss {
            source: 2,
            sum: 2215.25,
            weight: 1094.0
        }
    );
    assert_eq!(
        (first.steps[1].step, first.steps[1].sources_dropped),
        (510, true)
    );
    assert_eq!(
        (second.rank, second.of, second.part),
        (Some(4), DetailOf::Row, true)
    );
    assert_eq!(
        (second.steps[0].nonfinite, second.steps[1].details_dropped),
        (3, true)
    );
    assert_eq!(
        (third.of, third.steps[0].details.len()),
        (DetailOf::Document, 3)
    );
}
