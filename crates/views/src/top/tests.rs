//! Two scrapes of a scripted daemon, and of something else.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use batchweave_console::output::Style;
use tokio::time::Instant;

use super::*;

const BEFORE: &str = "\
# HELP batchweave_consumer_sessions Connected ranks.
batchweave_consumer_sessions 2
batchweave_consumer_steps_delivered_total{dp_rank=\"0\"} 100
batchweave_consumer_rank_wait_seconds_total{cause=\"fetching\",dp_rank=\"0\"} 3
batchweave_consumer_stage_seconds_bucket{stage=\"fetch\",le=\"0.01\"} 5
batchweave_consumer_stage_seconds_bucket{stage=\"fetch\",le=\"0.03\"} 5
batchweave_consumer_stage_seconds_bucket{stage=\"fetch\",le=\"+Inf\"} 5
batchweave_consumer_stage_seconds_count{stage=\"fetch\"} 5
batchweave_consumer_fetched_bytes_total 1000000
";

const NOW: &str = "\
batchweave_consumer_sessions 2
batchweave_consumer_steps_delivered_total{dp_rank=\"0\"} 120
batchweave_consumer_steps_delivered_total{dp_rank=\"10\"} 40
batchweave_consumer_rank_step{dp_rank=\"0\"} 121
batchweave_consumer_rank_step{dp_rank=\"10\"} 41
batchweave_consumer_rank_wait_seconds_total{cause=\"fetching\",dp_rank=\"0\"} 4
batchweave_consumer_rank_wait_seconds_total{cause=\"short\",dp_rank=\"10\"} 0.02
batchweave_consumer_ahead_steps{dp_rank=\"0\"} 5
batchweave_consumer_held_frames{dp_rank=\"0\"} 2
batchweave_consumer_ahead_bytes 2097152
batchweave_consumer_arena_bytes{part=\"held\"} 1024
batchweave_consumer_arena_bytes{part=\"total\"} 4096
batchweave_consumer_stage_seconds_bucket{stage=\"fetch\",le=\"0.01\"} 15
batchweave_consumer_stage_seconds_bucket{stage=\"fetch\",le=\"0.03\"} 25
batchweave_consumer_stage_seconds_bucket{stage=\"fetch\",le=\"+Inf\"} 25
batchweave_consumer_stage_seconds_count{stage=\"fetch\"} 25
batchweave_consumer_fetched_bytes_total 5194304
";

fn report() -> NodeReport {
    let at = Instant::now();
    let before = Scrape::made_of(BEFORE, at);
    let now = Scrape::made_of(NOW, at + Duration::from_secs(2));
    NodeReport::between("here:1", &before, &now)
}

#[test]
fn shares_rates_and_quantiles_are_of_the_time_between() {
    let json = serde_json::to_value(report()).unwrap();
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
    assert_eq!(json["ranks"][1]["dp_rank"], "10", "as numbers");
    assert_eq!(json["arena"]["total"], 4096);
    assert_eq!(json["fetched_bytes_per_second"], 2_097_152.0);
    let fetch = &json["stages"][1];
    assert_eq!(
        (&fetch["stage"], &fetch["per_second"]),
        (&"fetch".into(), &10.0.into())
    );
    assert_eq!(fetch["p50_seconds"], 0.01);
    let p99 = fetch["p99_seconds"].as_f64().unwrap();
    assert!((0.0295..0.03).contains(&p99), "{p99}");
    assert_eq!(json["stages"][0]["p50_seconds"], serde_json::Value::Null);
}

#[test]
fn the_text_says_whether_it_is_the_data() {
    let text = render::render(&report(), Style::default());
    for part in [
        "here:1  ready: 1 rank",
        "RANK  STEP  STEPS/S  WAITS %  fetching  short  AHEAD STEPS  AHEAD TIME  HELD FRAMES",
        "the data: a rank waits 50.0 % of its time",
        "read ahead  2.0 MiB",
        "fetched     2.0 MiB/s",
        "fetch           10.0  10.0 ms",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let at = Instant::now();
    let idle = Scrape::made_of("batchweave_consumer_sessions 0\n", at);
    let text = render::render(&NodeReport::between("x", &idle, &idle), Style::default());
    assert!(text.contains("no rank is connected"), "{text}");
}

/// Counters of a daemon that was started again begin at 0: nothing is negative.
#[test]
fn a_restarted_daemon_has_no_negative_rates() {
    let at = Instant::now();
    let before = Scrape::made_of(NOW, at);
    let now = Scrape::made_of(BEFORE, at + Duration::from_secs(2));
    let json = serde_json::to_value(NodeReport::between("x", &before, &now)).unwrap();
    assert_eq!(json["stages"][1]["per_second"], 2.5);
}

/// An endpoint that answers everything with `body`.
fn endpoint(body: &'static str) -> String {
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
async fn what_is_no_consumer_daemon_is_named() {
    assert!(Scrape::fetch(&endpoint(BEFORE)).await.unwrap().ready);
    let other = Scrape::fetch(&endpoint("batchweave_producer_held 0\n")).await;
    let why = other.unwrap_err().to_string();
    assert!(why.contains("is not a consumer daemon"), "{why}");
    let nobody = Scrape::fetch("127.0.0.1:1").await.unwrap_err().to_string();
    assert!(nobody.contains("--admin"), "{nobody}");
}

#[test]
fn several_daemons_are_a_table_by_node() {
    let absent = NodeReport::absent("there:2", "no metrics at there:2: refused".to_owned());
    let text = nodes::render(&[report(), absent], Style::default());
    for part in [
        "2 nodes, 1 ready; the data: rank 0 of here:1 waits 50.0 % of its time\n",
        "NODE     RANKS  STEP     STEPS/S  WAITS %  AHEAD TIME  FETCHED/S  STATE\n",
        "here:1       2  41..121     10.0     50.0  0.0 s       2.0 MiB    ready: 1 rank\n",
        "there:2      0  -              -        -  -           0 B        not ready: no metrics at there:2: refused\n",
        "NODE    RANK  STEP  STEPS/S",
        "here:1     0   121     10.0",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// A daemon that was absent before has no interval, so nothing is a rate.
#[test]
fn a_daemon_that_comes_back_has_no_rates_yet() {
    let now = || Scrape::made_of(NOW, Instant::now());
    let admin = "here:1";
    let gone = Watched {
        admin,
        last: Err(CliError::Absent("gone".to_owned())),
    };
    let back = Watched {
        admin,
        last: Ok(now()),
    };
    let json = serde_json::to_value(super::report((&gone, &back))).unwrap();
    assert_eq!(json["ranks"][0]["steps_per_second"], 0.0);
    let json = serde_json::to_value(super::report((&back, &gone))).unwrap();
    assert_eq!(
        (&json["ready"], &json["doing"]),
        (&false.into(), &"gone".into())
    );
}
