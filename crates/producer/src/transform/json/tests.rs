//! JSON as Python's `json.loads` reads it; the expected values are its results.

use serde_json::{Value, json};

use super::*;

/// Returns the value of `text` as Python reads it, with the counts of what is beyond the standard; `None` where the strict
/// reader takes it, or neither does.
fn read(text: &str) -> Option<(Value, u64, u64)> {
    if serde_json::from_str::<Value>(text).is_ok() {
        return None;
    }
    let (marked, beyond) = mark(text.as_bytes())?;
    let value = value(&marked).unwrap();
    Some((value, beyond.numbers, beyond.surrogates))
}

#[test]
fn numbers_of_python_are_read_as_python_reads_them() {
    let nan = "\u{ffff}NaN";
    for (text, value, numbers) in [
        (r#"{"a": NaN}"#, json!({"a": nan}), 1),
        (
            r#"{"a": [Infinity, -Infinity, NaN]}"#,
            json!({"a": ["\u{ffff}Infinity", "\u{ffff}-Infinity", nan]}),
            3,
        ),
        (
            r#"{"NaN": "NaN", "b":NaN}"#,
            json!({"NaN": "NaN", "b": nan}),
            1,
        ),
        (
            r#"{"a": "\"NaN\"", "b": NaN}"#,
            json!({"a": "\"NaN\"", "b": nan}),
            1,
        ),
        (r#"{"a": 1, "a": NaN}"#, json!({"a": nan}), 1),
        (r#"{"a": NaN, "a": 1}"#, json!({"a": 1}), 1),
        (r#"{"a": 1e999}"#, json!({"a": "\u{ffff}out of range"}), 1),
        (
            r#" { "a" : [ 1 , -2.5e3 , true , null , { } , [ ] , "\u00e4\/" ] , "b" : NaN } "#,
            json!({"a": [1, -2500.0, true, null, {}, [], "ä/"], "b": nan}),
            1,
        ),
        (
            r#"{"n": [0, -0, 18446744073709551615, -9223372036854775808, 1.0, 1E2], "b": NaN}"#,
            json!({"n": [0, -0.0, u64::MAX, i64::MIN, 1.0, 100.0], "b": nan}),
            1,
        ),
    ] {
        assert_eq!(read(text), Some((value, numbers, 0)), "{text}");
    }
}

#[test]
fn surrogates_of_python_are_read_as_replacement_characters() {
    for (text, value, surrogates) in [
        (r#"{"a": "\ud83d"}"#, json!({"a": "\u{fffd}"}), 1),
        (
            r#"{"a": "x\ud83dy\ude00z"}"#,
            json!({"a": "x\u{fffd}y\u{fffd}z"}),
            2,
        ),
        (
            r#"{"a": "\ud83d\ud83d\ude00"}"#,
            json!({"a": "\u{fffd}😀"}),
            1,
        ),
        (
            r#"{"a": "\ude00\ud83d"}"#,
            json!({"a": "\u{fffd}\u{fffd}"}),
            2,
        ),
        (r#"{"a": "\ud83d\n"}"#, json!({"a": "\u{fffd}\n"}), 1),
        (r#"{"a": "\ud83d\u0041"}"#, json!({"a": "\u{fffd}A"}), 1),
        (
            r#"{"\udc00": "\uD83D\uDE00 ok"}"#,
            json!({"\u{fffd}": "😀 ok"}),
            1,
        ),
    ] {
        assert_eq!(read(text), Some((value, 0, surrogates)), "{text}");
    }
}

#[test]
fn what_python_refuses_is_refused() {
    let deep = format!("{}NaN{}", "[".repeat(200), "]".repeat(200));
    let digits = format!("[NaN, {}]", "1".repeat(4301));
    for text in [
        "",
        "{",
        "[NaN",
        "[NaN,]",
        "[,NaN]",
        "[NaN NaN]",
        "{\"a\" NaN}",
        "{\"a\": NaN,}",
        "{a: NaN}",
        "{'a': NaN}",
        "-NaN",
        "+Infinity",
        "[nan]",
        "[Nan]",
        "[inf]",
        "[NaN] x",
        "[NaN, 01]",
        "[NaN, .5]",
        "[NaN, 1.]",
        "[NaN, 1e]",
        "[NaN, 0x1]",
        "[NaN, \"\t\"]",
        "[NaN, \"\\x\"]",
        "[NaN, \"\\u12\"]",
        "[NaN, \"\\u+123\"]",
        "[NaN, tru]",
        "[NaN, \"a]",
        "\u{feff}[NaN]",
        "[NaN]\0",
        "\0[NaN]",
        "[NaN,\u{a0}1]",
        "[- Infinity]",
        &deep,
        &digits,
    ] {
        assert_eq!(read(text), None, "{text}");
    }
    assert!(mark(b"[NaN, \"\xff\"]").is_none(), "not UTF-8");
    assert!(mark(b"{\"a\": 1}").is_none(), "nothing beyond the standard");
}

#[test]
fn numbers_are_floats_where_a_reader_takes_them() {
    let (marked, _) = mark(br#"{"a": [NaN, -Infinity, 1e999, 1.5]}"#).unwrap();
    let read: std::collections::BTreeMap<String, Vec<f64>> = from_slice(&marked).unwrap();
    let [nan, low, high, one] = read["a"][..] else {
        panic!("{read:?}")
    };
    assert!(nan.is_nan());
    let rest = [f64::NEG_INFINITY, f64::INFINITY, 1.5].map(f64::to_bits);
    assert_eq!([low, high, one].map(f64::to_bits), rest);
    assert!(number("\u{ffff}NaN").unwrap().is_nan());
    assert!(is_number("\u{ffff}out of range") && number("\u{ffff}out of range").is_none());
    assert!(!is_number("NaN"));
}
