//! TGB records: the digest, strict fields, each rule broken once.

use super::*;

fn part(first_slice: u32, slices: u32) -> ObjectPart {
    let key = format!("data/p/1-00/{first_slice}.tgb");
    let length = u64::from(slices) * 256;
    ObjectPart {
        key,
        offset: 128,
        length,
        first_slice,
        slices,
        frame_bytes: Some(256),
        index: None,
    }
}

fn record() -> TgbRecord {
    let mut second = part(2, 3);
    second.frame_bytes = None;
    second.index = Some(second.end() + 40);
    let parts = vec![part(0, 2), second];
    let digest = Digest::from_crcs([1, 2, 3, 4, 5]);
    TgbRecord {
        rows: 20,
        tokens: 80,
        digest,
        parts,
        provenance: None,
        cost: None,
    }
}

#[test]
fn good_ones_pass_and_round_trip() {
    let record = record();
    assert_eq!(record.check(5), Ok(()));
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<TgbRecord>(&json).unwrap(), record);
    assert!(
        !json.contains("provenance") && !json.contains("null"),
        "{json}"
    );
    assert_eq!(record.bytes(), 5 * 256);
}

#[test]
fn the_digest_is_that_of_the_format_page() {
    let mut text = b"batchweave tgb digest 1\n".to_vec();
    text.extend([1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(
        Digest::from_crcs([1, u32::MAX]),
        Digest::from(Hash::sha256(&text))
    );
    assert_ne!(Digest::from_crcs([1, 2]), Digest::from_crcs([2, 1]));
}

#[test]
fn unknown_fields_are_refused() {
    let json = serde_json::to_string(&record()).unwrap();
    for (from, to) in [
        ("\"rows\"", "\"x\":1,\"rows\""),
        ("\"offset\"", "\"x\":1,\"offset\""),
    ] {
        let error = serde_json::from_str::<TgbRecord>(&json.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains("unknown field `x`"), "{error}");
    }
}

#[test]
fn each_rule_is_refused_by_its_own_error() {
    type Break = fn(&mut TgbRecord);
    let cases: Vec<(Break, &str)> = vec![
        (|r| r.rows = 0, "Size"),
        (|r| r.rows = TGB_ROWS_MAX + 1, "Size"),
        (|r| r.tokens = TGB_TOKENS_MAX + 1, "Size"),
        (|r| r.parts.clear(), "Count"),
        (|r| r.parts = vec![part(0, 1); TGB_PARTS_MAX + 1], "Count"),
        (|r| r.parts[0].slices = 0, "Slices"),
        (|r| r.parts[0].slices = u32::MAX, "Slices"),
        (|r| r.parts[1].first_slice = 1, "Gap"),
        (|r| r.parts[1].first_slice = 3, "Gap"),
        (|r| r.parts.swap(0, 1), "Gap"),
        (|r| drop(r.parts.pop()), "Total"),
        (|r| r.parts[0].frame_bytes = None, "Lookup"),
        (|r| r.parts[0].index = Some(4096), "Lookup"),
        (|r| r.parts[0].offset = 8, "Geometry"),
        (|r| r.parts[0].length += 64, "Geometry"),
        (|r| r.parts[0].frame_bytes = Some(0), "Geometry"),
        (|r| r.parts[0].frame_bytes = Some(u64::MAX), "Geometry"),
        (|r| r.parts[1].length = 128, "Geometry"),
        (|r| r.parts[1].index = Some(0), "Geometry"),
        (
            |r| r.parts[1].index = r.parts[1].index.map(|at| at + 4),
            "Geometry",
        ),
        (|r| r.parts[0].offset = OBJECT_BYTES_MAX, "TooFar"),
        (|r| r.parts[0].length = u64::MAX, "TooFar"),
        (|r| r.parts[1].index = Some(u64::MAX - 7), "TooFar"),
    ];
    for (i, (break_it, variant)) in cases.into_iter().enumerate() {
        let mut record = record();
        break_it(&mut record);
        let error = record.check(5).unwrap_err();
        assert!(
            format!("{error:?}").starts_with(variant),
            "case {i}: {error:?}"
        );
    }
    assert!(matches!(
        record().check(6),
        Err(PartError::Total {
            expected: 6,
            found: 5
        })
    ));
}
