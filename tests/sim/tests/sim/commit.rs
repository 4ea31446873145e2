//! The load table's command: its fields, the same figures for the same seed, and rules at any size. The
//! goals themselves are in docs/performance.md.

use std::process::Command;

use serde_json::Value;

fn commit(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_batchweave-sim"))
        .args(["commit", "--json", "--seconds", "10"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(figures: &Value, field: &str) -> f64 {
    let number = figures[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} in {figures}"))
}

/// The comparisons of docs/paper.md: a manifest that is written again gets slower as it grows, and without its parts DAC
/// takes longer.
#[test]
fn other_manifests_and_policies_take_longer() {
    let p99 = |arguments: &[&str]| number(&commit(arguments), "p99_ms");
    let million = ["--producers", "1", "--history", "1000000"];
    let delta = p99(&million);
    let chunked = p99(&[&million[..], &["--manifest", "rewrite-chunked"]].concat());
    let rewrite = p99(&[&million[..], &["--manifest", "rewrite"]].concat());
    assert!(rewrite > 1000.0 + delta, "{rewrite} {delta}");
    assert!(chunked < rewrite / 10.0, "{chunked} {rewrite}");
    let many = ["--producers", "16"];
    let dac = p99(&many);
    for other in [&["--policy", "interval"][..], &["--policy", "dac-unled"]] {
        let other = p99(&[&many[..], other].concat());
        assert!(other > dac, "{other} {dac}");
    }
    let short = commit(&[&many[..], &["--short-keys"]].concat());
    assert_eq!(short["short_keys"], true);
    let requests = |figures: &Value| number(figures, "requests_per_entry");
    assert!(requests(&short) > requests(&commit(&many)), "{short}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let first = commit(&["--producers", "8", "--seed", "7"]);
    assert_eq!(first, commit(&["--producers", "8", "--seed", "7"]));
    let other = commit(&["--producers", "8", "--seed", "8"]);
    assert_ne!(first["hash"], other["hash"]);
}

#[test]
fn one_producer_alone_makes_one_put_an_entry() {
    for profile in ["s3-standard", "s3-express"] {
        let figures = commit(&["--producers", "1", "--profile", profile]);
        for (field, expected) in [
            ("producers", 1.0),
            ("attempts_per_commit", 1.0),
            ("visible_over_offered", 1.0),
            ("jain", 1.0),
        ] {
            let found = number(&figures, field);
            assert!((found - expected).abs() < 0.06, "{field}: {figures}");
        }
        assert!(number(&figures, "requests_per_entry") < 1.3, "{figures}");
        assert_eq!(figures["never_visible"], 0, "{figures}");
    }
}

#[test]
fn every_policy_and_scenario_runs() {
    for policy in ["dac", "dac-unled", "interval", "plain", "backoff", "naive"] {
        let figures = commit(&["--producers", "4", "--policy", policy]);
        assert!(number(&figures, "p50_ms") > 0.0, "{figures}");
        assert_eq!(figures["never_visible"], 0, "{figures}");
    }
    for scenario in [
        "leader-killed",
        "leader-frozen",
        "slow-store",
        "slow-producers",
        "bursts",
        "zipf",
        "rare",
    ] {
        let figures = commit(&["--producers", "8", "--scenario", scenario]);
        assert_eq!(figures["scenario"], scenario);
        assert!(number(&figures, "worst_producer_p99_ms") > 0.0, "{figures}");
    }
    let cold = commit(&["--producers", "16", "--scenario", "cold-start"]);
    assert!(number(&cold, "opened_s") > 0.0, "{cold}");
}

#[test]
fn plots_and_time_lines_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    commit(&["--producers", "2", "--out", path]);
    let name = folder.path().join("s3-standard-steady-dac-2");
    let svg = std::fs::read_to_string(name.with_extension("svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("polyline"), "{svg}");
    let json = std::fs::read(name.with_extension("json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["timeline"].as_array().unwrap().len(), 10);
}

#[test]
fn mistakes_in_the_arguments_are_named() {
    for (arguments, said) in [
        (["--profile", "gcs"], "s3-express"),
        (["--scenario", "calm"], "leader-killed"),
        (["--policy", "best"], "backoff"),
        (["--rate", "0"], "above 0"),
        (["--producers", "0"], "1..=100000"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_batchweave-sim"))
            .arg("commit")
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(said), "{text}");
    }
}
