//! The demo as a test: random kills, and every token compared with the documents.

use std::process::Command;

use batchweave_tests::{program, seed};
use serde_json::Value;

/// The number of runs in `make test`; the run whose files `shown` reads is on a local store, with twice the kills.
const RUNS: u64 = 1;
/// The number of runs in `make test-long`, which sets `BATCHWEAVE_LONG`.
const RUNS_LONG: u64 = 50;

fn demo(args: &[&str]) -> Value {
    let out = Command::new(program("batchweave"))
        .arg("demo")
        .arg("--json")
        .args(args)
        .output()
        .expect("the demo starts");
    let (text, log) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(
        out.status.success(),
        "{args:?}: {}\n{text}\n{log}",
        out.status
    );
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{args:?}: {e} in {last:?}\n{log}"))
}

fn number(summary: &Value, field: &str) -> f64 {
    summary[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} is missing in {summary}"))
}

/// Checks that there were kills, and that each rank got each token once.
pub(crate) fn check(summary: &Value) {
    for (field, at_least) in [
        ("steps", 200.0),
        ("ranks", 4.0),
        ("tokens", 1e6),
        ("documents", 100.0),
        ("producer_restarts", 1.0),
        ("consumer_restarts", 1.0),
        ("rank_restarts", 1.0),
        ("read_amplification", 0.99),
        ("requests_per_step", 0.01),
        ("tokens_per_second", 1.0),
        ("steps_reclaimed", 40.0),
        ("rank_wait_p99_seconds", 0.0),
    ] {
        assert!(number(summary, field) >= at_least, "{field} in {summary}");
    }
    assert_eq!(summary["mismatches"], 0, "{summary}");
    assert_eq!(summary["verify_job"], "proved", "{summary}");
    assert_eq!(summary["steps_proved"], summary["steps"], "{summary}");
    assert!(
        number(summary, "bytes_kept") < number(summary, "steps") * 65_000.0,
        "something was deleted: {summary}"
    );
}

#[test]
fn every_rank_gets_every_token_once_despite_kills_at_any_time() {
    let long = std::env::var_os("BATCHWEAVE_LONG").is_some();
    let runs = if long { RUNS_LONG } else { RUNS };
    let first = seed();
    for run in 0..runs {
        let seed = (first + run).to_string();
        // Every other run uses the local store; of three, the second kills twice as often.
        let store = if run % 2 == 0 { "s3" } else { "file" };
        let kills = if run % 3 == 1 { "2" } else { "1" };
        let summary = demo(&["--store", store, "--kills", kills, "--seed", &seed]);
        check(&summary);
        if kills == "1" {
            let amplification = number(&summary, "read_amplification");
            assert!(
                amplification <= 1.05,
                "seed {seed}: {amplification} in {summary}"
            );
        }
    }
}

#[test]
fn wrong_input_is_one_clear_error() {
    for (args, message) in [
        (vec!["--input", "/nowhere/at/all"], "no such file or folder"),
        (vec!["--store", "ftp://x"], "neither s3, file nor a URL"),
        (vec!["--steps", "many"], "invalid value"),
        (vec!["--steps", "0"], "invalid value '0'"),
    ] {
        let out = Command::new(program("batchweave"))
            .arg("demo")
            .args(&args)
            .output()
            .expect("the demo starts");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && text.contains(message),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn a_root_in_use_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stream.json"), "{}").unwrap();
    let store = folder.path().display().to_string();
    let out = Command::new(program("batchweave"))
        .args(["demo", "--store", &store])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("is in use, it has stream.json; give an empty root"),
        "{said}"
    );
    assert!(!said.contains("kept: "), "{said}");
    assert_eq!(out.status.code(), Some(64), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
