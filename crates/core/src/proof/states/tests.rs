//! States in ledgers: the stored form, one rejection for each rule, and what earlier programs say.

use std::path::Path;

use super::*;
use crate::error::FormatError;
use crate::json;
use crate::proof::{Ledger, LedgerEntry, ReaderCoverage, ledger};

const FILE: &str = "../../tests/golden/ledger-v2.json";
const KEY: &str = "jobs/llm@12/3/ledger/000000000498-0f.2.json";

fn states() -> Vec<ReportedStates> {
    let first = ReportedStates {
        dp_rank: 0,
        rank: None,
        trained: vec![(498, 510), (511, 512)],
        left_out: vec![(510, 511, "nan".into())],
    };
    let second = ReportedStates {
        dp_rank: 1,
        rank: Some(4),
        trained: vec![(510, 514)],
        left_out: Vec::new(),
    };
    vec![first, second]
}

fn ledger() -> Ledger {
    let entry = LedgerEntry {
        rank: Some(4),
        to: 512,
        skipped: Vec::new(),
        ..ledger::tests::entry()
    };
    Ledger {
        format: 2,
        entries: vec![entry],
        told: vec![ReaderCoverage {
            dp_rank: 1,
            rank: Some(4),
            to: 512,
        }],
        states: states(),
        ..ledger::tests::ledger()
    }
}

fn read(bytes: &[u8]) -> Result<Ledger, FormatError> {
    ledger::tests::read(bytes, KEY)
}

#[test]
fn a_ledger_with_states_is_as_format_2_wrote_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let written = ledger().to_json();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let stored = std::fs::read(&path).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&stored),
        String::from_utf8_lossy(&written)
    );
    assert_eq!(read(&stored).unwrap(), ledger());
    // Reports that come after the ledger of their steps are stored alone.
    let alone = Ledger {
        entries: Vec::new(),
        told: Vec::new(),
        ..ledger()
    };
    assert_eq!(read(&alone.to_json()).unwrap(), alone);
}

/// Programs that know format 1 only read ledgers by this function, before any of the content.
#[test]
fn an_earlier_program_asks_for_an_upgrade() {
    let why = json::parse::<serde_json::Value>(&ledger().to_json(), KEY, 1 << 20).unwrap_err();
    assert!(matches!(why, FormatError::UnknownFormat { found: 2, .. }));
    assert!(why.to_string().contains("upgrade"), "{why}");
}

#[test]
fn every_rule_has_its_refusal() {
    type Change = fn(&mut Ledger);
    let cases: [(Change, &str); 10] = [
        (|l| l.format = 1, "format must be 2 with states"),
        (|l| l.states.clear(), "format must be 2 with states"),
        (|l| l.states.swap(0, 1), "each reader once, in order"),
        (
            |l| l.states[1] = l.states[0].clone(),
            "each reader once, in order",
        ),
        (
            |l| l.states[1].trained.clear(),
            "coordinate 1: has no range",
        ),
        (
            |l| l.states[1].trained[0].1 = 510,
            "steps 510 to 510 are not a range",
        ),
        (|l| l.states[1].trained[0].1 = NUMBER_MAX, "are not a range"),
        (
            |l| l.states[0].trained.swap(0, 1),
            "in order, with one state",
        ),
        (
            |l| l.states[0].left_out[0].1 = 512,
            "one state of each step",
        ),
        (
            |l| l.states[0].left_out[0].2 = "a\nb".into(),
            "is not a reason",
        ),
    ];
    for (change, says) in cases {
        let mut changed = ledger();
        change(&mut changed);
        let error = read(&changed.to_json()).unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains(KEY),
            "{says}: {error}"
        );
    }
    let many = (0..=STATE_RANGES_MAX as u64).map(|n| (498 + 2 * n, 499 + 2 * n));
    let mut changed = ledger();
    changed.states[0].left_out.clear();
    changed.states[0].trained = many.collect();
    let error = read(&changed.to_json()).unwrap_err().to_string();
    assert!(error.contains("more than 65536 ranges"), "{error}");
}

#[test]
fn a_reason_is_one_short_line() {
    assert!(is_reason("nan") && is_reason(&"x".repeat(REASON_BYTES_MAX)));
    for text in ["", "a\tb", &"x".repeat(REASON_BYTES_MAX + 1)] {
        assert!(!is_reason(text), "{text:?}");
    }
}
