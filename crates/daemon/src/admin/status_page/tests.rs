//! The content of the status page.

use prometheus::{IntCounterVec, IntGauge, Opts};

use super::*;

#[test]
fn rates_and_rows_come_from_the_registry() {
    const STATUS_PAGE: StatusPage = StatusPage {
        program: "test",
        version: "1",
        plots: &[Plot {
            title: "Tokens",
            unit: "tokens",
            metric: "frames_total",
            scale: Some("tokens"),
        }],
        tables: &[Table {
            title: "All",
            about: "All.",
            metrics: &[("frames_total", "frames"), ("absent", "nothing")],
        }],
        ranks: None,
        held: Some("held"),
        jobs: Some("attempt"),
    };
    let registry = Registry::new();
    let frames = IntCounterVec::new(Opts::new("frames_total", "Frames."), &["rank"]).unwrap();
    let tokens = IntGauge::new("tokens", "Tokens.").unwrap();
    registry.register(Box::new(frames.clone())).unwrap();
    registry.register(Box::new(tokens.clone())).unwrap();
    tokens.set(10);
    let sampler = Sampler::new(STATUS_PAGE, Identity::new("s3://b/s", "web"), registry);
    frames.with_label_values(&["0"]).inc_by(1);
    sampler.sample();
    frames.with_label_values(&["0"]).inc_by(4);
    frames.with_label_values(&["1"]).inc_by(2);
    for _ in 0..POINTS + 9 {
        sampler.sample();
    }
    let json = serde_json::to_value(sampler.status(&Health::default())).unwrap();
    let points = json["plots"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), POINTS);
    let first = sampler.plots.lock().unwrap()[0].last;
    assert_eq!(first, Some(70.0));
    let rows = json["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["labels"]["rank"], &rows[0]["value"]),
        (&"0".into(), &5.0.into())
    );
    assert_eq!(
        (&rows[0]["text"], &json["stream"]),
        (&"frames".into(), &"s3://b/s".into())
    );
    assert_eq!(
        (&json["ready"], &json["state"]),
        (&false.into(), &"not ready".into())
    );
}

#[test]
fn a_daemon_that_is_held_says_so_and_tells_its_facts() {
    const STATUS_PAGE: StatusPage = StatusPage {
        program: "test",
        version: "1",
        plots: &[],
        ranks: None,
        tables: &[],
        held: Some("held"),
        jobs: Some("attempt"),
    };
    let registry = Registry::new();
    let held = IntGauge::new("held", "Held.").unwrap();
    registry.register(Box::new(held.clone())).unwrap();
    let sampler = Sampler::new(STATUS_PAGE, Identity::default(), registry);
    let health = Health::default();
    health.ready("waits for job llm");
    health.tell("pass", "1 of 2");
    let json = || serde_json::to_value(sampler.status(&health)).unwrap();
    assert_eq!(json()["state"], "ready");
    held.set(1);
    let shown = json();
    assert_eq!(shown["state"], "held");
    assert_eq!(shown["facts"][0]["text"], "1 of 2");
    health.tell("pass", "");
    assert_eq!(json()["facts"], serde_json::json!([]));
}

#[test]
fn the_served_jobs_are_the_labels_of_a_metric() {
    const STATUS_PAGE: StatusPage = StatusPage {
        program: "test",
        version: "1",
        plots: &[],
        ranks: None,
        tables: &[],
        held: None,
        jobs: Some("attempt"),
    };
    let registry = Registry::new();
    let attempt =
        prometheus::IntGaugeVec::new(Opts::new("attempt", "A."), &["training_job"]).unwrap();
    registry.register(Box::new(attempt.clone())).unwrap();
    let sampler = Sampler::new(STATUS_PAGE, Identity::default(), registry);
    assert_eq!(sampler.status(&Health::default()).job, "");
    attempt.with_label_values(&["llm"]).set(2);
    attempt.with_label_values(&["eval"]).set(-1);
    assert_eq!(sampler.status(&Health::default()).job, "eval, llm");
}
