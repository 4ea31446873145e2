//! `batchweave job`: opening, closing and the status of jobs.

use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Watermark;
use serde_json::{Value, json};

use crate::world::World;

const REQUEST: &str = "0123456789abcdef0123456789abcdef";

/// Eight steps; llm@2 with two attempts of two ranks, the second restarted from step 4.
async fn restarted() -> World {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 8).await;
    assert_eq!(world.run(&["job", "open", "llm"]).code, 0);
    world.attempt("llm", 2, 0, None).await;
    for (step, rank) in [(2, 0), (2, 1), (4, 0), (4, 1), (6, 1)] {
        world.mark("llm@2", 0, step, Some(rank)).await;
    }
    world.progress("llm@2", 0, 6, (0, 1)).await;
    world.attempt("llm", 2, 4, Some((0, 4))).await;
    world.progress("llm@2", 1, 7, (0, 0)).await;
    world.progress("llm@2", 1, 5, (1, 1)).await;
    world
}

#[test]
fn a_job_is_opened_once_and_its_name_is_taken() {
    let world = World::with_stream("");
    world.run(&["job", "list"]).prints(&["no job is open\n"]);
    let open = ["job", "open", "llm", "--keep", "3", "--request", REQUEST];
    world.run(&open).prints(&[
        "job llm@0 is open, by version 0\n",
        "from step 0 on, keeps 3 restart points, holds data, paces producers, no lease\n",
    ]);
    world.run(&open).prints(&["job llm@0 is open, as before\n"]);
    let taken = "it is llm@0, from step 0 on, keeps 3 restart points, holds data, paces producers";
    let again = ["job", "open", "llm", "--keep", "3"];
    world.run(&again).fails(
        1,
        &["job llm is open already", taken, "choose another name"],
    );
    let eval = ["job", "open", "eval", "--no-holds", "--no-paces"];
    let lease = ["--lease", "30min", "--start", "7", "--json"];
    let opened = world.run(&[&eval[..], &lease].concat());
    let opened: Value = serde_json::from_str(&opened.out).unwrap();
    let expected = [
        ("version", json!(1)),
        ("opened", json!(1)),
        ("start", json!(7)),
        ("keep", json!(2)),
        ("holds", json!(false)),
        ("paces", json!(false)),
        ("lease_seconds", json!(1800)),
    ];
    for (field, value) in expected {
        assert_eq!(opened[field], value, "{field} of {opened}");
    }
}

#[tokio::test]
async fn a_job_that_cannot_be_is_refused_with_the_reason() {
    let world = World::with_stream("");
    let open = |more: &[&str]| world.run(&[&["job", "open", "llm"], more].concat());
    open(&["--keep", "0"]).fails(64, &["--keep 0", "could never restart", "at least 1"]);
    open(&["--lease", "500ms"]).fails(64, &["--lease", "whole seconds"]);
    open(&["--lease", "soon"]).fails(64, &["invalid duration", "a whole number and"]);
    open(&["--request", "12"]).fails(64, &["32 hexadecimal digits"]);
    world
        .run(&["job", "open", "LLM"])
        .fails(64, &["LLM", "a-z"]);
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 3).await;
    let mut admin = world.log().await;
    let request = Some(admin.new_request());
    let watermark = |_: &_| {
        Entry::Watermark(Watermark {
            step: 2,
            jobs: Vec::new(),
            request,
        })
    };
    admin.commit_entry("test", watermark).await.unwrap();
    open(&["--start", "1"]).fails(1, &["step 1 is below the watermark 2", "read is 2"]);
    assert_eq!(open(&["--start", "2"]).code, 0);
}

#[tokio::test]
async fn list_and_status_show_where_jobs_stand() {
    let world = restarted().await;
    world.run(&["job", "list"]).prints(&[
        "JOB    ATTEMPTS  FROM  DP  POSITION  KEEPS  FLOOR  HOLDS  PACES\n",
        "llm@2         2     4   2         5      2      2  yes    yes\n",
        "the stream has 8 steps; watermark 0: may move to 2: `batchweave reclaim` shows what goes\n",
    ]);
    world.run(&["status"]).prints(&[
        "ahead      3 steps, 192 tokens, ahead of llm@2",
        "JOB    STEP  AHEAD  STEPS/S  PROGRESS",
        "llm@2     5      3",
    ]);
    world.run(&["status", "--verbose"]).prints(&[
        "watermark  0: every step can be read; may move to 2",
        "llm@2         2     4   2         5      2      2  yes    yes\n",
    ]);
    let list = world.json(&["job", "list"]);
    let job = &list["jobs"][0];
    assert_eq!(job["restart_points"], json!([0, 2, 4]));
    assert_eq!((&job["position"], &job["floor"]), (&json!(5), &json!(2)));
    assert_eq!(list["reclaim"], json!({"state": "may", "watermark": 2}));
    assert_eq!(world.json(&["status"])["jobs"][0], *job);
    let past = world.json(&["status", "--at", "2"]);
    assert_eq!(past["jobs"][0]["position"], Value::Null, "{past}");
    // Marks are stored at once, progress now and then.
    for rank in [0, 1] {
        world.mark("llm@2", 1, 7, Some(rank)).await;
    }
    let marked = world.json(&["job", "list"]);
    assert_eq!(marked["jobs"][0]["position"], json!(7), "{marked}");
    let keeps = ["job", "open", "new", "--keep", "1"];
    assert_eq!(world.run(&keeps).code, 0);
    let held = "held by new@5, which has too few restart points yet";
    world.run(&["job", "list"]).prints(&[held]);
}

#[tokio::test]
async fn show_has_attempts_marks_and_progress() {
    let world = restarted().await;
    world.run(&["job", "show", "llm"]).prints(&[
        "job             llm@2\n",
        "position        5; 3 steps committed ahead of it\n",
        "restart points  0, 2, 4\n",
        "floor           2: keeps the steps from there on\n",
        "ATTEMPT  OPENED AT  PARENT          START  DP  MESH\n",
        "      0          3  -                   0   2  dp 2 x tp 2\n",
        "      1          4  attempt 0 at 4      4   2  dp 2 x tp 2\n",
        "   2        0  complete\n",
        "   6        0  missing: dp ranks 0\n",
        "      0  0..1      0..5\n",
        "      1  0         4..6\n",
        "      1  1         4\n",
    ]);
    let shown = world.json(&["job", "show", "llm@2"]);
    let marks = shown["marks"].as_array().unwrap();
    assert_eq!(marks.len(), 3);
    let incomplete = json!({"step": 6, "attempt": 0, "complete": false, "missing": [0]});
    assert_eq!(marks[2], incomplete);
    assert_eq!(shown["attempts"][1]["parent"]["step"], 4);
    assert_eq!(shown["progress"].as_array().unwrap().len(), 3);
    world.mark("llm@2", 1, 9, Some(0)).await;
    world
        .run(&["job", "show", "llm"])
        .prints(&["1 object in the job's folder"]);
    world
        .run(&["job", "show", "llm@3"])
        .fails(1, &["llm@3 is not open", "the open one is llm@2"]);
    world
        .run(&["job", "show", "eval"])
        .fails(1, &["job eval is not open", "open are llm@2"]);
}

#[tokio::test]
async fn a_job_that_may_run_is_closed_by_force_only() {
    let world = restarted().await;
    let close = ["job", "close", "llm", "--reason", "enough"];
    let refused = world.run(&close);
    refused.fails(
        1,
        &["llm@2 may still run", "attempt 1", "step 5", "--force"],
    );
    let forced = [&close[..], &["--force", "--request", REQUEST]].concat();
    world.run(&forced).prints(&[
        "job llm@2 is closed, by version 5\n",
        "watermark: no job holds data: `batchweave reclaim --to STEP` moves it\n",
    ]);
    world
        .run(&forced)
        .prints(&["job llm is closed, as before\n"]);
    world
        .run(&close)
        .fails(1, &["job llm is not open", "no job is open"]);
    world
        .run(&["log", "--limit", "1"])
        .prints(&["job llm@2 closed: enough"]);
    assert_eq!(world.run(&["job", "open", "llm"]).code, 0);
    world
        .run(&forced)
        .prints(&["job llm is closed, as before\n"]);
    let list = world.json(&["job", "list"]);
    assert_eq!(list["jobs"][0]["opened"], 6, "a repeat leaves the next one");
    let old = ["job", "close", "llm@2", "--reason", "x", "--force"];
    world.run(&old).fails(1, &["llm@2 is not open"]);
}

#[tokio::test]
async fn a_job_that_has_read_everything_or_never_began_just_closes() {
    let world = restarted().await;
    assert_eq!(world.run(&["job", "open", "idle"]).code, 0);
    let idle = ["job", "close", "idle", "--reason", "not needed"];
    world
        .run(&idle)
        .prints(&["job idle@5 is closed, by version 6"]);
    assert_eq!(world.run(&["seal", "--reason", "all"]).code, 0);
    let close = ["job", "close", "llm", "--reason", "done"];
    world.run(&close).fails(1, &["step 5 of 8"]);
    world.progress("llm@2", 1, 8, (0, 1)).await;
    world
        .run(&["job", "show", "llm"])
        .prints(&["position        8: all that there will be\n"]);
    world.run(&close).prints(&["job llm@2 is closed"]);
}

#[tokio::test]
async fn an_attempt_that_left_checkpoints_behind_is_warned_of() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 5).await;
    let opened = world.json(&["job", "open", "llm"])["version"]
        .as_u64()
        .unwrap();
    world.attempt("llm", 2, 0, None).await;
    world.mark(&format!("llm@{opened}"), 0, 4, None).await;
    world.attempt("llm", 2, 0, None).await;
    let ran = world.run(&["verify", "--job", "llm"]);
    let warning = "warning: attempt 1 began at step 0 without a checkpoint, although attempt 0 had one at step 4";
    assert!(ran.out.contains(warning), "{}", ran.out);
}
