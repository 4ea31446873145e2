//! stream.json: golden shape, each rule broken once, differences.

use super::*;

fn sample() -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([7; 16]),
        slices: 8,
        order: StreamOrder::Arrival,
        producers: vec!["p0".parse().unwrap(), "p1".parse().unwrap()],
        tokenizer: TokenizerId {
            name: "gpt2".into(),
            fingerprint: Hash::sha256(b"gpt2"),
        },
        seq_len: 128,
        rows_per_slice: 4,
        created: "2026-11-21T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}

#[test]
fn round_trips() {
    let config = sample();
    assert_eq!(
        StreamConfig::from_json(&config.to_json(), "stream.json").unwrap(),
        config
    );
}

#[test]
fn each_rule_is_refused_by_name() {
    type Break = fn(&mut StreamConfig);
    let cases: [(Break, &str); 8] = [
        (|c| c.slices = 0, "slices must be"),
        (|c| c.slices = SLICES_MAX + 1, "slices must be"),
        (|c| c.rows_per_slice = 0, "at least 1"),
        (|c| c.seq_len = 0, "at least 1"),
        (
            |c| c.producers.push("p0".parse().unwrap()),
            "p0 is named twice",
        ),
        (
            |c| {
                c.order = StreamOrder::Lanes;
                c.producers.clear();
            },
            "needs the lanes",
        ),
        (|c| c.format = 2, "format is 2"),
        (|c| c.format = 3, "it reads format 1 to 2"),
    ];
    for (break_it, message) in cases {
        let mut config = sample();
        break_it(&mut config);
        let error = StreamConfig::from_json(&config.to_json(), "stream.json")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(message) && error.contains("stream.json"),
            "{error}"
        );
    }
}

#[test]
fn unknown_fields_are_refused() {
    let text = String::from_utf8(sample().to_json()).unwrap().replacen(
        "\"slices\"",
        "\"x\": 1, \"slices\"",
        1,
    );
    let signed = crate::json::sign_again(text.as_bytes()).unwrap();
    let error = StreamConfig::from_json(&signed, "stream.json")
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown field `x`"), "{error}");
}

#[test]
fn all_differences_are_listed_at_once() {
    let mut other = sample();
    other.slices = 16;
    other.seq_len = 64;
    other.order = StreamOrder::Lanes;
    other.stream_id = StreamId::from_random([8; 16]);
    let lines = sample().differences(&other);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("slices: the stream has \"8\", this configuration \"16\""));
    assert!(sample().differences(&sample()).is_empty());
}
