//! The stored form, and one rejection for each rule.

use super::*;

const KEY: &str = "jobs/llm@12/3/ledger/000000000510-0f.2.json";

pub(in crate::proof) fn entry() -> LedgerEntry {
    LedgerEntry {
        dp_rank: 1,
        rank: None,
        first_slice: 2,
        slices: 2,
        from: 510,
        to: 514,
        resumed: false,
        crcs: vec![1, 0xffff_ffff, 0xa0, 7],
        skipped: vec![(511, 513)],
    }
}

pub(in crate::proof) fn ledger() -> Ledger {
    Ledger {
        format: 1,
        stream: StreamId::from_random([7; 16]),
        job: "llm".parse().unwrap(),
        opened: 12,
        attempt: 3,
        id: AttemptId([0xcd; 16]),
        node: "0f".into(),
        entries: vec![entry()],
        told: Vec::new(),
        states: Vec::new(),
    }
}

fn told(dp_rank: u32, to: Step) -> ReaderCoverage {
    ReaderCoverage {
        dp_rank,
        rank: None,
        to,
    }
}

pub(in crate::proof) fn read(bytes: &[u8], key: &str) -> Result<Ledger, FormatError> {
    let job = "llm".parse().unwrap();
    let place = LedgerPlace {
        stream: StreamId::from_random([7; 16]),
        job: &job,
        opened: 12,
        attempt: 3,
    };
    Ledger::from_json(bytes, key, &place)
}

#[test]
fn the_stored_bytes() {
    let text = String::from_utf8(ledger().to_json()).unwrap();
    let (body, digest) = text.split_once(",\"digest\"").unwrap();
    assert_eq!(
        body,
        concat!(
            r#"{"format":1,"stream":"07070707-0707-4707-8707-070707070707","job":"llm","opened":12,"#,
            r#""attempt":3,"id":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","node":"0f","entries":["#,
            r#"{"dp_rank":1,"first_slice":2,"slices":2,"from":510,"to":514,"resumed":false,"#,
            r#""crcs":"00000001ffffffff000000a000000007","skipped":[[511,513]]}]"#,
        )
    );
    let expected = format!(":\"{}\"}}\n", crate::ids::Hash::sha256(body.as_bytes()));
    assert_eq!(digest, expected);
    assert_eq!(read(text.as_bytes(), KEY).unwrap(), ledger());
    let with = Ledger {
        told: vec![told(0, 3), told(1, 514)],
        ..ledger()
    };
    let text = String::from_utf8(with.to_json()).unwrap();
    let said = r#"],"told":[{"dp_rank":0,"to":3},{"dp_rank":1,"to":514}],"digest""#;
    assert!(text.contains(said), "{text}");
    assert_eq!(read(text.as_bytes(), KEY).unwrap(), with);
    // The entry follows a hole that is not filled yet.
    let behind = Ledger {
        told: vec![told(1, 200)],
        ..ledger()
    };
    assert_eq!(read(&behind.to_json(), KEY).unwrap(), behind);
    let steps: Vec<_> = entry().steps().map(|(s, c)| (s, c.to_vec())).collect();
    assert_eq!(steps, [(510, vec![1, 0xffff_ffff]), (513, vec![0xa0, 7])]);
}

#[test]
fn every_rule_has_its_refusal() {
    type Change = fn(&mut Ledger);
    let mut cases: Vec<(Change, &str)> = Vec::new();
    let mut case = |change, says| cases.push((change, says));
    case(|l| l.format = 2, "format must be 2 with states, else 1");
    case(|l| l.format = 3, "format 3 is not known");
    case(
        |l| l.stream = StreamId::from_random([8; 16]),
        "belongs to stream 0808",
    );
    case(
        |l| l.job = "other".parse().unwrap(),
        "is of other@12, attempt 3",
    );
    case(|l| l.opened = 13, "is of llm@13, attempt 3");
    case(|l| l.attempt = 4, "is of llm@12, attempt 4");
    case(
        |l| l.node = "10".into(),
        "of node \"10\", which its key does not say",
    );
    case(|l| l.entries.clear(), "1 to 65536 entries, not 0");
    case(
        |l| l.entries[0].to = 510,
        "entry 0: steps 510 to 510 are not a range",
    );
    case(|l| l.entries[0].to = NUMBER_MAX, "are not a range");
    case(
        |l| {
            l.entries[0].from = 509;
            l.entries[0].crcs.extend([0, 0]);
        },
        "holds steps from 509 on",
    );
    case(|l| l.entries[0].slices = 0, "slice 2 and 0 more");
    case(
        |l| l.entries[0].slices = SLICES_MAX + 1,
        "more of at most 1048576",
    );
    case(|l| l.entries[0].first_slice = 3, "can't begin with slice 3");
    case(
        |l| l.entries[0].skipped[0].0 = 509,
        "skipped steps 509 to 513",
    );
    case(
        |l| l.entries[0].skipped[0].1 = 511,
        "skipped steps 511 to 511",
    );
    case(
        |l| l.entries[0].skipped[0].1 = 515,
        "skipped steps 511 to 515",
    );
    case(
        |l| l.entries[0].skipped.push((512, 513)),
        "skipped steps 512 to 513",
    );
    case(
        |l| _ = l.entries[0].crcs.pop(),
        "3 checksums for 2 steps of 2 slices",
    );
    case(
        |l| l.told = vec![told(2, 600)],
        "told says nothing of coordinate 1",
    );
    case(
        |l| l.told = vec![told(1, 514), told(1, 515)],
        "each reader once, in order",
    );
    case(
        |l| l.told = vec![told(1, NUMBER_MAX)],
        "each reader once, in order",
    );
    for (change, says) in cases {
        let mut changed = ledger();
        change(&mut changed);
        let error = read(&changed.to_json(), KEY).unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains(KEY),
            "{says}: {error}"
        );
    }
}

#[test]
fn changed_bytes_and_foreign_keys_are_refused() {
    let text = String::from_utf8(ledger().to_json()).unwrap();
    for (from, to, says) in [
        ("\"to\":514", "\"to\":513", "damaged"),
        ("ffffffff", "fffffffe", "damaged"),
        ("\"resumed\":false", "\"resumed\":true", "damaged"),
    ] {
        let error = read(text.replace(from, to).as_bytes(), KEY).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    let body = text.split(",\"digest\"").next().unwrap();
    let bare = format!("{body}}}\n");
    let error = read(bare.as_bytes(), KEY).unwrap_err();
    assert!(error.to_string().contains("has no digest"), "{error}");
    let again = |body: &str| {
        let hash = crate::ids::Hash::sha256(body.as_bytes());
        read(format!("{body},\"digest\":\"{hash}\"}}\n").as_bytes(), KEY)
    };
    assert!(again(body).is_ok());
    for (from, to) in [
        ("ffffffff", "FFFFFFFF"),
        ("ffffffff", "+fffffff"),
        ("ffffffff", "fffffff"),
        ("\"node\"", "\"more\":1,\"node\""),
    ] {
        let error = again(&body.replace(from, to)).unwrap_err();
        assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
    }
    for key in ["x", "jobs/llm@12/3/ledger/000000000511-0f.2.json"] {
        assert!(read(text.as_bytes(), key).is_err(), "{key}");
    }
}
