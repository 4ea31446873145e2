//! Wrong command lines and roots: each is one message that says what failed, where, why and what to do.

use std::process::Command;

use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Watermark;

use crate::world::{Ran, World, command};

fn bare(args: &[&str]) -> Ran {
    Ran::of(&mut command(args))
}

#[test]
fn the_command_line_is_checked() {
    bare(&["statsu"]).fails(64, &["statsu", "'status'"]);
    bare(&["show"]).fails(64, &["<STEP>"]);
    bare(&["show", "-1"]).fails(64, &["-1"]);
    bare(&["status"]).fails(64, &["--store URL", "BATCHWEAVE_STORE"]);
    bare(&["status", "--store", ""]).fails(64, &["--store URL"]);
    assert_eq!(bare(&[]).code, 64, "no verb");
    for helped in [
        &["--help"][..],
        &["help"],
        &["log", "--help"],
        &["--version"],
    ] {
        assert_eq!(bare(helped).code, 0, "{helped:?}");
    }
}

#[test]
fn a_verb_whose_program_is_missing_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("batchweave");
    // Not written by this process: a child that another test forks meanwhile would keep the file busy.
    let program = env!("CARGO_BIN_EXE_batchweave");
    let copied = Command::new("cp")
        .args([program.as_ref(), alone.as_os_str()])
        .status();
    assert!(copied.unwrap().success());
    for args in [
        &["plan", "--producers", "1"][..],
        &["--json", "bench", "fetch"],
        &["help", "demo"],
        &["dev-s3", "--help"],
    ] {
        let mut command = Command::new(&alone);
        command.args(args).env("PATH", folder.path());
        Ran::of(&mut command).fails(1, &["batchweave-lab", "No such file", "make install"]);
    }
}

#[test]
fn urls_are_checked() {
    for url in ["data/x", "oss://bucket/x", "file://data", "s3://B/x"] {
        bare(&["status", "--store", url]).fails(64, &[url, "examples:"]);
    }
}

#[test]
fn a_root_without_a_stream_says_so() {
    let world = World::new();
    world
        .run(&["status"])
        .fails(73, &["no stream at", &world.url(), "start a producer"]);
    world.run(&["log"]).fails(73, &["no stream at"]);
    world.run(&["show", "0"]).fails(73, &["no stream at"]);
    let gone = format!("{}/gone", world.url());
    bare(&["status", "--store", &gone]).fails(69, &[&gone, "create the folder"]);
}

#[test]
fn init_refuses_what_is_no_stream() {
    let world = World::new();
    world.init("", &["--order", "lanes"]).fails(64, &["lanes"]);
    world.init("p0,p0", &[]).fails(64, &["p0", "twice"]);
    world.init("P0", &[]).fails(64, &["P0", "a-z"]);
    let args = ["init", "--slices", "8", "--fingerprint", "12ab"];
    world
        .run(&args)
        .fails(64, &["12ab", "64 hexadecimal digits"]);
    world
        .run(&["init", "--slices", "8"])
        .fails(64, &["--seq-len", "--tokenizer"]);
    world
        .run(&["init", "--like", "/nowhere"])
        .fails(65, &["--like /nowhere"]);
    let like = world.path("like.json");
    std::fs::write(&like, r#"{"format":9}"#).unwrap();
    world
        .run(&["init", "--like", like.to_str().unwrap()])
        .fails(65, &["format 9"]);
}

#[test]
fn init_refuses_a_root_in_use() {
    let world = World::new();
    std::fs::write(world.path("photo.jpg"), "x").unwrap();
    world.init("", &[]).fails(73, &["photo.jpg", "empty root"]);
    let world = World::with_stream("p0");
    let ran = world.init("p0,p1", &[]);
    ran.fails(73, &["differs", "producers: the stream has \"p0\""]);
}

#[tokio::test]
async fn steps_that_are_not_there_say_why() {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 3).await;
    world
        .run(&["show", "3"])
        .fails(1, &["step 3", "not committed yet", "3 steps"]);
    world
        .run(&["show", "0", "--slice", "4"])
        .fails(64, &["slices 0..3"]);
    world
        .run(&["log", "--from", "3"])
        .fails(1, &["version 3", "next one is 2"]);
    world
        .run(&["status", "--at", "2"])
        .fails(1, &["version 2", "newest is 1"]);
    let mut admin = world.log().await;
    let request = admin.new_request();
    let watermark = |_: &_| {
        Entry::Watermark(Watermark {
            step: 2,
            jobs: Vec::new(),
            request: Some(request),
        })
    };
    admin.commit_entry("test", watermark).await.unwrap();
    world
        .run(&["show", "1"])
        .fails(1, &["step 1", "reclaimed", "read is 2"]);
    world
        .run(&["status"])
        .prints(&["given up   the first 2 steps, which no job needs\n"]);
    assert_eq!(world.run(&["seal", "--reason", "enough"]).code, 0);
    world
        .run(&["show", "3"])
        .fails(1, &["does not exist", "3 steps"]);
    world
        .run(&["status"])
        .prints(&["end        sealed at step 3\n"]);
    world
        .run(&["log"])
        .prints(&["watermark 2 (no job holds)", "sealed: enough"]);
}
