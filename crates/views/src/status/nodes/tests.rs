//! The answers of scripted daemons as reports, text and errors.

use std::io::{Read, Write};
use std::net::TcpListener;

use batchweave_console::output::Style;
use serde_json::json;

use super::*;

fn status(program: &str, more: &serde_json::Value) -> serde_json::Value {
    let mut status = json!({
        "program": program, "version": "1", "stream": "s3://b/s", "host": "h", "name": "", "job": "llm",
        "ready": true, "state": "ready", "doing": "1 rank\n", "up_seconds": 9, "facts": [], "plots": [],
        "tables": [], "messages": [],
    });
    let fields = more.as_object().unwrap().clone();
    status.as_object_mut().unwrap().extend(fields);
    status
}

fn consumer() -> serde_json::Value {
    let row = |name: &str, labels: serde_json::Value, value: f64| json!({"name": name, "text": "", "help": "", "labels": labels, "value": value});
    let arena = "batchweave_consumer_arena_bytes";
    let more = json!({
        "ranks": [
            {"rank": "0", "step": 121, "behind": 9, "ahead": 5, "held": 2, "steps_per_second": 10.0,
             "waiting": 0.5, "causes": {"fetching": 0.5}, "why": "fetching"},
            {"rank": "10", "step": 41, "behind": 89, "ahead": 0, "held": 0, "steps_per_second": 0.0,
             "waiting": 0.01, "causes": {"short": 0.01}, "why": "short"},
        ],
        "stages": [
            {"stage": "wait", "per_second": 0.0, "p50_seconds": null, "p99_seconds": null},
            {"stage": "fetch", "per_second": 10.0, "p50_seconds": 0.01, "p99_seconds": 0.0296},
        ],
        "plots": [
            {"title": "Delivered", "name": "batchweave_consumer_frames_delivered_total", "points": [7.0]},
            {"title": "Fetched", "name": "batchweave_consumer_fetched_bytes_total",
             "points": [9e9, 0.0, 2_097_152.0, 2_097_152.0, 2_097_152.0, 4_194_304.0]},
        ],
        "tables": [{"title": "Memory", "about": "", "rows": [
            row(arena, json!({"part": "held"}), 1024.0),
            row(arena, json!({"part": "total"}), 4096.0),
            row("batchweave_consumer_ahead_bytes", json!({}), 2_097_152.0),
        ]}],
    });
    status("batchweave-consumer", &more)
}

fn producer() -> serde_json::Value {
    let more = json!({
        "name": "tokens-0", "state": "held", "doing": "held back by job llm",
        "facts": [{"name": "progress", "text": "42 %"}],
    });
    status("batchweave-producer", &more)
}

fn report(admin: &str, status: serde_json::Value) -> NodeReport {
    NodeReport::new(admin, serde_json::from_value(status).unwrap())
}

fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn a_report_has_the_ranks_the_memory_and_the_stages() {
    let json = serde_json::to_value(report("here:1", consumer())).unwrap();
    assert_eq!(
        (&json["admin"], &json["doing"]),
        (&"here:1".into(), &"1 rank".into())
    );
    let rank = &json["ranks"][0];
    assert_eq!(
        (&rank["dp_rank"], &rank["step"]),
        (&"0".into(), &121.into())
    );
    assert_eq!(rank["steps_per_second"], 10.0);
    assert_eq!(rank["causes"]["fetching"], 0.5);
    assert_eq!(rank["waiting"], 0.5);
    assert_eq!(rank["ahead_steps"], 5);
    assert_eq!(rank["ahead_seconds"], 0.5);
    assert_eq!(rank["held_frames"], 2);
    assert_eq!(json["ranks"][1]["ahead_seconds"], serde_json::Value::Null);
    assert_eq!(
        json["arena"],
        json!({"held": 1024, "used": 0, "total": 4096})
    );
    assert_eq!(json["ahead_bytes"], 2_097_152);
    assert_eq!(
        json["fetched_bytes_per_second"], 2_097_152.0,
        "of the last five points"
    );
    assert_eq!(
        (
            &json["stages"][1]["stage"],
            &json["stages"][1]["p50_seconds"]
        ),
        (&"fetch".into(), &0.01.into())
    );
}

#[test]
fn the_text_says_whether_it_is_the_data() {
    let text = several::render(&[report("here:1", consumer())], Style::default());
    contains(
        &text,
        &[
            "here:1  ready: 1 rank\n",
            "RANK  STEP  STEPS/S  WAITS %  fetching  short  AHEAD STEPS  AHEAD TIME  HELD FRAMES",
            "the data: a rank waits 50.0 % of its time",
            "read ahead  2.0 MiB",
            "fetched     2.0 MiB/s",
            "fetch        10.0  10.0 ms  29.6 ms",
        ],
    );
    let idle = report("x", status("batchweave-consumer", &json!({"ranks": []})));
    let text = several::render(&[idle], Style::default());
    contains(&text, &["no rank is connected"]);
}

#[test]
fn a_producer_is_shown_by_its_own_words() {
    let text = several::render(&[report("p:1", producer())], Style::default());
    assert_eq!(
        text,
        "p:1  producer tokens-0, held: held back by job llm\n\nprogress  42 %\n"
    );
    let json = serde_json::to_value(report("p:1", producer())).unwrap();
    assert_eq!(
        (&json["state"], &json["ranks"]),
        (&"held".into(), &serde_json::Value::Null)
    );
}

/// A daemon of an earlier version sends no rates, causes or stages.
#[test]
fn fields_that_a_daemon_lacks_are_empty() {
    let mut earlier = consumer();
    earlier.as_object_mut().unwrap().remove("stages");
    for rank in earlier["ranks"].as_array_mut().unwrap() {
        rank.as_object_mut()
            .unwrap()
            .retain(|name, _| !["causes", "steps_per_second"].contains(&name.as_str()));
    }
    let text = several::render(&[report("here:1", earlier)], Style::default());
    contains(
        &text,
        &[
            "RANK  STEP  STEPS/S  WAITS %  AHEAD STEPS",
            "a rank waits 50.0 %",
        ],
    );
}

#[test]
fn several_daemons_are_a_table_by_node() {
    let absent = NodeReport::absent("there:2", "does not answer: refused".to_owned());
    let all = [
        report("here:1", consumer()),
        absent,
        report("p:1", producer()),
    ];
    let text = several::render(&all, Style::default());
    contains(
        &text,
        &[
            "3 nodes, 2 ready; the data: rank 0 of here:1 waits 50.0 % of its time\n",
            "NODE     RANKS  STEP     STEPS/S  WAITS %  AHEAD TIME  FETCHED/S  STATE\n",
            "here:1       2  41..121      0.0     50.0  0.5 s       2.0 MiB    ready: 1 rank\n",
            "there:2      -  -              -        -  -           -          not ready: does not answer: refused\n",
            "p:1          -  -              -        -  -           -          producer tokens-0, held: held back by job llm\n",
            "NODE    RANK  STEP  STEPS/S",
            "here:1     0   121     10.0",
        ],
    );
}

/// An endpoint that answers everything with `body`.
fn endpoint(body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes());
        }
    });
    address
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_as_one_is_an_error() {
    let nodes = [
        endpoint(consumer().to_string()),
        "127.0.0.1:1".to_owned(),
        endpoint("batchweave_producer_held 0\n".to_owned()),
    ];
    let seen = read(&nodes).await;
    assert_eq!(seen[0].all_ranks().len(), 2);
    let error = |at: usize| first_failure(&seen[at..]).unwrap_err().to_string();
    let refused = error(0);
    assert!(
        refused.starts_with("127.0.0.1:1 does not answer: "),
        "{refused}"
    );
    assert!(refused.ends_with("name its admin.listen"), "{refused}");
    let other = error(2);
    assert!(
        other.contains("answers, but not as a daemon of BatchWeave"),
        "{other}"
    );
    assert!(first_failure(&seen[..1]).is_ok());
}
