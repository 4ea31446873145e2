//! The producer's measurements on a little text: they run, agree with each other, and report the documented
//! fields. The values matter only on a quiet machine.

use serde_json::Value;

use crate::json;

const LITTLE: [&str; 4] = ["--mib", "2", "--rounds", "1"];

fn measured(what: &str, more: &[&str]) -> Value {
    let args = [&["bench", what], more].concat();
    json(&args)
}

#[track_caller]
fn positive(report: &Value, fields: &[&str]) {
    for field in fields {
        let value = report[field].as_f64().unwrap_or(f64::NAN);
        assert!(value.is_finite() && value > 0.0, "{field} in {report}");
    }
}

#[test]
fn each_part_is_measured_beside_its_limit() {
    let tokenized = measured("tokenize", &LITTLE);
    let rates = ["limit_bytes_per_second", "bytes_per_second"];
    positive(&tokenized, &rates);
    positive(&tokenized, &["ratio_to_tokenizer", "documents"]);
    let produced = measured("produce", &LITTLE);
    positive(&produced, &rates);
    positive(&produced, &["ratio_to_tokenizer", "ratio_with_server"]);
    for same in ["tokens", "text_bytes", "documents"] {
        assert_eq!(produced[same], tokenized[same], "{same}");
    }
    assert!(produced["server_cpu_seconds"].is_number());
    // Eight slices of eight rows; the rest of the last batch is dropped.
    let whole = (produced["tokens"].as_u64().unwrap() - 1) / (64 * 2048);
    assert_eq!(produced["batches"].as_u64(), Some(whole));
}

#[test]
fn packing_and_uploads_are_measured_beside_theirs() {
    let packed = measured("pack", &LITTLE);
    positive(&packed, &["tokens", "limit_tokens_per_second"]);
    let modes = packed["modes"].as_array().unwrap();
    assert_eq!(modes.len(), 4);
    for mode in modes {
        positive(
            mode,
            &[
                "tokens_per_second",
                "packing_tokens_per_second",
                "ratio_to_copy",
            ],
        );
        let waste = mode["waste"].as_f64().unwrap();
        assert!((0. ..0.5).contains(&waste), "{mode}");
    }
    let few = ["--objects", "4", "--object-mib", "1", "--rounds", "1"];
    positive(&measured("upload", &few), &["ratio_to_plain_put"]);
}

/// Exact figures: the order is a function of its options.
#[test]
fn the_order_is_measured() {
    let little = ["--files", "100", "--documents", "500", "--window", "8MiB"];
    let more = ["--tokens", "100000", "--seed", "3"];
    let report = measured("order", &[&little[..], &more].concat());
    let figure = |value: &Value| value.as_f64().unwrap();
    assert!(
        figure(&report["neighbours_same_file_ratio"]) < 8.0,
        "{report}"
    );
    assert!(figure(&report["tail_quality"]) < 16.0, "{report}");
    // A document of the largest source is a thousandth of 100,000 tokens.
    assert!(figure(&report["share_error_max"]) < 0.05, "{report}");
    let bytes = |field: &str| report[field].as_u64().unwrap();
    assert!(bytes("cursor_bytes") <= bytes("cursor_bytes_allowed"));
    let forms = report["forms"].as_array().unwrap();
    let names: Vec<&str> = forms
        .iter()
        .filter_map(|form| form["form"].as_str())
        .collect();
    assert_eq!(names, ["lines", "row groups", "compressed"]);
    positive(
        &forms[2],
        &["blocks", "open_blocks", "documents_per_second"],
    );
}
