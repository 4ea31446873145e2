//! Verbs that change a stream: quarantine, retire, repair, seal.

use std::fs;

use batchweave_core::keys;
use serde_json::{Value, json};

use crate::world::World;

const REQUEST: &str = "0123456789abcdef0123456789abcdef";

/// Eight steps by p0 and a job llm@2 with one attempt, at step 3.
async fn running() -> World {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 8).await;
    assert_eq!(world.run(&["job", "open", "llm"]).code, 0);
    world.attempt("llm", 1, 0, None).await;
    world.progress("llm@2", 0, 3, (0, 0)).await;
    world
}

#[tokio::test]
async fn a_quarantine_counts_for_attempts_opened_after_it() {
    let world = running().await;
    let none = world.run(&["quarantine"]);
    none.prints(&["nothing is quarantined\n"]);
    let add = ["quarantine", "4..5", "--reason", "garbage"];
    world.run(&add).prints(&[
        "steps 4..5: quarantined, by version 4 (id ",
        "counts for attempts that are opened after version 4\n",
        "llm@2 attempt 0 (at step 3) still reads them: restart it from a checkpoint",
    ]);
    world
        .run(&add)
        .prints(&["steps 4..5: quarantined, as before (id "]);
    let past = ["quarantine", "1", "--reason", "late"];
    world
        .run(&past)
        .prints(&["step 1: quarantined, by version 5", "has read them already"]);
    world.attempt("llm", 1, 3, None).await;
    let listed = world.run(&["quarantine"]);
    listed.prints(&[
        "ID        STEPS  ADDED  LIFTED  READERS              REASON\n",
        "  4..5       4       -  llm@2/1 passes over  garbage\n",
    ]);
    world
        .run(&["status"])
        .prints(&["quarantine  steps 4..5: garbage"]);
    let ahead = ["quarantine", "20..30", "--reason", "to come"];
    world
        .run(&ahead)
        .prints(&["the stream has 8 steps so far; the quarantine holds for later ones too\n"]);
}

#[tokio::test]
async fn a_quarantine_is_lifted_by_its_id() {
    let world = running().await;
    let add = ["quarantine", "4..5", "--reason", "garbage"];
    let added = world.json(&[&add[..], &["--request", REQUEST]].concat());
    assert_eq!(added["change"]["quarantine"], REQUEST);
    world.attempt("llm", 1, 3, None).await;
    world
        .run(&["quarantine", "--lift", "ffff"])
        .fails(1, &["begins with \"ffff\"", "`batchweave quarantine`"]);
    world.run(&["quarantine", "--lift", "0123"]).prints(&[
        "steps 4..5: no longer quarantined, by version 6 (id 0123",
        "counts for attempts that are opened after version 6\n",
        "llm@2 attempt 1 (at step 3) passes over them",
    ]);
    world
        .run(&["quarantine", "--lift", "0123"])
        .prints(&["no longer quarantined, as before"]);
    world.attempt("llm", 1, 3, None).await;
    let listed = world.json(&["quarantine"]);
    assert_eq!(listed["quarantines"], json!([]), "nobody needs it any more");
    world
        .run(&["quarantine", "--lift", REQUEST])
        .fails(1, &["no such quarantine in force"]);
}

#[test]
fn ranges_that_are_none_are_refused() {
    let world = World::with_stream("");
    let add = |range: &str| world.run(&["quarantine", range, "--reason", "x"]);
    add("5..4").fails(64, &["first step is above the last"]);
    add("4-5").fails(64, &["FIRST..LAST"]);
    add("0..9007199254740993").fails(1, &["larger than"]);
    world.run(&["quarantine", "4..5"]).fails(64, &["--reason"]);
    world
        .run(&["quarantine", "4", "--reason", &"x".repeat(5000)])
        .fails(1, &["longer than 4096", "shorten --reason"]);
}

#[tokio::test]
async fn a_producer_that_is_gone_is_retired() {
    let world = World::with_stream("p0,p1");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 3).await;
    let retire = |name| ["retire", name, "--reason", "its machine burned down"];
    world
        .run(&retire("p7"))
        .fails(1, &["p7 was never opened", "opened producers: p0"]);
    world.run(&retire("p0")).prints(&[
        "p0 is retired: term 1 is over, by version 2\n",
        "its 3 TGBs stay; the next term continues with seq 3\n",
    ]);
    world
        .run(&retire("p0"))
        .prints(&["term 1 is over, as before\n"]);
    let status = world.json(&["status"]);
    assert_eq!(status["producers"][0]["state"], "retired");
    let mut again = world.producer("p0").await;
    world.commit(&mut again, 1).await;
    let mut p1 = world.producer("p1").await;
    p1.finish().await;
    world
        .run(&retire("p1"))
        .fails(1, &["producer p1 has finished", "no term to retire"]);
    world
        .run(&["log"])
        .prints(&["retired p0/1: its machine burned down"]);
}

#[tokio::test]
async fn a_retired_lane_says_that_all_wait_for_it() {
    let world = World::new();
    assert_eq!(world.init("p0,p1", &["--order", "lanes"]).code, 0);
    let _p0 = world.producer("p0").await;
    world
        .run(&["retire", "p0", "--reason", "gone"])
        .prints(&["the next step is this lane's"]);
}

#[tokio::test]
async fn an_unreadable_record_is_repaired_and_all_go_on() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 2).await;
    world
        .run(&["repair"])
        .prints(&["nothing to repair\n", "newest version 1, 2 steps\n"]);
    let key = keys::log(2);
    fs::write(world.path(&key), "<html>gateway error</html>").unwrap();
    for verb in [&["status"][..], &["log"], &["show", "0"], &["job", "list"]] {
        world
            .run(verb)
            .fails(76, &["version 2", &key, "`batchweave repair`"]);
    }
    let seal = world.run(&["seal", "--reason", "x"]);
    seal.fails(76, &[&key]);
    let looked = world.run(&["repair"]);
    assert_eq!(looked.code, 76, "{looked:?}");
    for part in ["record  log/", "bytes   26 B", "--apply", "restore"] {
        assert!(looked.out.contains(part), "no {part} in {looked:?}");
    }
    assert!(!world.path("repairs").exists(), "looking writes nothing");
    world.run(&["repair", "--apply"]).fails(64, &["--reason"]);
    world
        .run(&["repair", "--apply", "--reason", "a proxy"])
        .prints(&["done: version 2 is void", "newest version 2, 2 steps\n"]);
    world.run(&["repair"]).prints(&["nothing to repair\n"]);
    let data = (p0.next_seq(), p0.epoch());
    assert_eq!(data, (2, 1));
    let next = p0.log().manifest().next_version();
    assert_eq!(next, 2, "its next commit meets the void record first");
    world.commit(&mut p0, 1).await;
    world
        .run(&["log"])
        .prints(&["VOID record: a repair says that it is void"]);
    assert_eq!(
        world.json(&["status"])["head"],
        json!({"version": 3, "steps": 3})
    );
}

#[tokio::test]
async fn a_record_that_others_have_read_is_not_repaired() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 2).await;
    world.commit(&mut p0, 2).await;
    let path = world.path(&keys::log(1));
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..100]).unwrap();
    let apply = ["repair", "--apply", "--reason", "x", "--json"];
    let refused = world.run(&apply);
    assert_eq!(refused.code, 76, "{refused:?}");
    let report: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!(
        (&report["repair"], &report["readable"]),
        (&json!("refused"), &json!(false))
    );
    let advice = report["advice"].as_str().unwrap();
    assert!(advice.contains("altered after it was written"), "{advice}");
    assert!(!world.path("repairs").exists());
    fs::write(&path, good).unwrap();
    assert_eq!(world.json(&["repair"])["repair"], "none");
    fs::write(world.path(&keys::log(3)), r#"{"format":3}"#).unwrap();
    let newer = world.run(&["repair", "--apply", "--reason", "x"]);
    assert!(
        newer.code == 76 && newer.out.contains("upgrade"),
        "{newer:?}"
    );
}

#[test]
fn a_command_with_a_request_of_its_own_happens_once() {
    let world = World::with_stream("");
    let seal = ["seal", "--reason", "enough", "--request", REQUEST];
    world.run(&seal).prints(&["sealed, by version 0\n"]);
    let undo = ["seal", "--undo", "--reason", "more came"];
    world.run(&undo).prints(&["not sealed, by version 1\n"]);
    world
        .run(&seal)
        .prints(&["not sealed, as before\n", "is open\n"]);
    world.run(&undo).prints(&["not sealed, as before\n"]);
}
