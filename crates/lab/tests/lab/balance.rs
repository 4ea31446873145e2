//! `bench balance` beside few steps of other means: the goals of balanced batches that do not depend on the machine.

use serde_json::Value;

use crate::json;

#[track_caller]
fn at_most(report: &Value, field: &str, most: f64) {
    let value = report[field].as_f64().unwrap_or(f64::NAN);
    assert!(value <= most, "{field} is above {most} in {report}");
}

#[test]
fn balanced_batches_meet_their_goals() {
    // All 256 steps: of fewer than 200 the 99th percentile is the least even one or two.
    let report = json(&["bench", "balance", "--beside", "2"]);
    let corpora = report["corpora"].as_array().unwrap();
    assert_eq!(corpora.len(), 5);
    for corpus in corpora {
        let p99 = match corpus["corpus"].as_str() {
            Some("sft") => 1.05,
            Some("sft and images") => 1.04,
            _ => 1.035,
        };
        at_most(corpus, "slice_imbalance_p99", p99);
        at_most(corpus, "slice_imbalance_mean", 1.012);
        at_most(corpus, "step_imbalance", 1.14);
        at_most(corpus, "late_windows_max", 2.0);
        assert!(corpus["fill"].as_f64().unwrap() >= 0.975, "{corpus}");
        let ranks = &corpus["slice_imbalance_by_ranks"];
        at_most(ranks, "32", 1.007);
        let all = ranks["64"].as_f64().unwrap();
        assert_eq!(ranks.as_object().unwrap().len(), 7);
        for number in ["1", "2", "4", "8", "16", "32"] {
            at_most(ranks, number, all);
        }
    }
    at_most(&corpora[0], "row_imbalance_mean", 1.012);
    at_most(&report["mixture"], "batch_share_off", 0.06);
    for variant in report["variants"].as_array().unwrap() {
        at_most(variant, "late_windows_max", 2.0);
    }
}

#[test]
fn the_plot_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("balance.svg");
    let path = path.to_str().unwrap();
    let small = [
        "--slices", "4", "--tokens", "512", "--steps", "8", "--beside", "2",
    ];
    let args = [&["bench", "balance", "--plot", path], &small[..]].concat();
    json(&args);
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("balanced"), "{svg}");
}
