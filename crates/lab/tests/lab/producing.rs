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
fn a_producer_is_measured_beside_the_tokenizer() {
    let more = ["--shuffle", "1MiB"];
    let produced = measured("produce", &[&LITTLE[..], &more].concat());
    positive(&produced, &["limit_bytes_per_second", "bytes_per_second"]);
    positive(&produced, &["ratio_to_tokenizer", "ratio_with_server"]);
    positive(&produced, &["documents", "shuffled_over_ordered_speed"]);
    assert!(produced["server_cpu_seconds"].is_number());
    // Eight slices of eight rows; the rest of the last batch is dropped.
    let whole = (produced["tokens"].as_u64().unwrap() - 1) / (64 * 2048);
    assert_eq!(produced["batches"].as_u64(), Some(whole));
}

#[test]
fn packing_is_measured_beside_a_copy() {
    let packed = measured("pack", &LITTLE);
    positive(&packed, &["tokens", "limit_tokens_per_second"]);
    let modes = packed["modes"].as_array().unwrap();
    let names: Vec<_> = modes.iter().map(|mode| mode["mode"].as_str()).collect();
    assert_eq!(names, [Some("concat"), Some("best_fit")]);
    for mode in modes {
        positive(mode, &["tokens_per_second", "packing_tokens_per_second"]);
        positive(mode, &["ratio_to_copy"]);
        let waste = mode["waste"].as_f64().unwrap();
        assert!((0. ..0.5).contains(&waste), "{mode}");
    }
}
