//! The output of status, log and show on a sound stream.

use std::process::Stdio;

use serde_json::Value;

use crate::world::{Ran, World, command};

/// Two producers, four steps, p1 finished.
async fn small() -> World {
    let world = World::with_stream("p0,p1");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 3).await;
    let mut p1 = world.producer("p1").await;
    world.commit(&mut p1, 1).await;
    p1.finish().await;
    world
}

/// Returns the output with random commit ids masked.
fn masked(ran: &Ran) -> Vec<String> {
    let mask = |line: &str| format!("{}<commit>    {}", &line[..10], &line[22..]);
    ran.out.lines().map(mask).collect()
}

#[tokio::test]
async fn init_creates_once_and_finds_it_again() {
    let world = World::new();
    world.init("p0,p1", &[]).prints(&[
        "stream created",
        "batch      4 slices x 2 rows x 8 tokens = 64 tokens per step",
        "order      arrival; ends when p0, p1 have finished",
    ]);
    world
        .init("p0,p1", &[])
        .prints(&["stream was there, with the same parameters"]);
    let found: Value = serde_json::from_str(&world.init("p0,p1", &["--json"]).out).unwrap();
    assert_eq!(found["created"], false);
    assert_eq!(found["stream"]["tokenizer"]["name"], "bytes");
}

#[tokio::test]
async fn init_takes_the_parameters_of_another_stream() {
    let (one, two) = (World::with_stream("p0"), World::new());
    let like = one.path("stream.json");
    let made = two.json(&["init", "--like", like.to_str().unwrap()]);
    let mut expected = one.json(&["status"])["stream"].clone();
    assert_ne!(made["stream"]["stream_id"], expected["stream_id"]);
    for own in ["stream_id", "created"] {
        expected[own] = made["stream"][own].clone();
    }
    assert_eq!(made["stream"], expected);
}

#[tokio::test]
async fn status_tells_where_everything_stands() {
    let world = small().await;
    world.run(&["status"]).prints(&[
        "data       4 steps, 256 tokens, ",
        "batch      4 slices x 2 rows x 8 tokens = 64 tokens per step\n",
        "rate       ",
        "last commit ",
        "ahead      no job is open, so nothing reads the stream\n",
        "end        open\n",
        "PRODUCER  STATE     BATCHES  INPUT\n",
        "p0        open            3      -\n",
    ]);
    let short = world.run(&["status"]).out;
    assert!(
        !short.contains("TERM") && !short.contains("snapshots"),
        "{short}"
    );
    world.run(&["status", "--verbose"]).prints(&[
        "data       4 steps, 256 tokens",
        "head       version 4; 4 steps (0..3)\n",
        "commits    newest 5 records: 1.0 entries and 0.8 TGBs per record, ",
        "watermark  0: every step can be read\n",
        "snapshots  none\n",
        "PRODUCER  STATE     TERM  NEXT SEQ  OPENED AT  INSTANCE\n",
        "p0        open         1         3          0  host:1\n",
        "p1        finished     1         1          2  host:1\n",
    ]);
    let status = world.json(&["status"]);
    assert_eq!(
        status["head"],
        serde_json::json!({ "version": 4, "steps": 4 })
    );
    assert_eq!(status["producers"][1]["state"], "finished");
    let commits = &status["commits"];
    assert_eq!([&commits["records"], &commits["entries"]], [5, 5]);
    assert_eq!(commits["tgbs"], 4);
    let log = std::fs::read_dir(world.path("log")).unwrap();
    let stored: u64 = log
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(commits["bytes"], stored);
    assert_eq!(status["end"], Value::Null);
    let totals = &status["totals"];
    assert_eq!(
        (&totals["tokens"], &totals["exact"]),
        (&256.into(), &true.into())
    );
    let past = world.json(&["status", "--at", "1"]);
    assert_eq!(
        past["head"],
        serde_json::json!({ "version": 1, "steps": 3 })
    );
    assert_eq!(past["producers"][1]["state"], "not opened");
    assert_eq!(past["commits"]["records"], 2);
}

#[tokio::test]
async fn lanes_show_the_producer_that_all_others_wait_for() {
    let world = World::new();
    assert_eq!(world.init("p0,p1", &["--order", "lanes"]).code, 0);
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 3).await;
    world.run(&["status", "--verbose"]).prints(&[
        "order      lanes in turn: p0, p1\n",
        "head       version 1; 1 step (0)\n",
        "next lane  p1, since version 1; 2 TGBs of other lanes wait for it\n",
    ]);
    let status = world.json(&["status"]);
    assert_eq!(status["awaited_lane"], "p1");
    assert_eq!(status["awaited_since"], 1);
}

#[tokio::test]
async fn log_prints_a_line_a_commit() {
    let world = small().await;
    let all = world.run(&["log"]);
    let expected = [
        "       0  <commit>      p0            opened term 1 by host:1",
        "       1  <commit>      p0/1          batch seq 0..2: 3 TGBs, 192 tokens -> steps 0..2",
        "       2  <commit>      p1            opened term 1 by host:1",
        "       3  <commit>      p1/1          batch seq 0: 1 TGB, 64 tokens -> steps 3",
        "       4  <commit>      p1/1          finished after 1 TGB",
    ];
    let heading = " VERSION  COMMIT        WRITER        ENTRIES -> STEPS\n";
    let below = |ran: &Ran| {
        assert!(ran.out.starts_with(heading), "{}", ran.out);
        masked(ran).split_off(1)
    };
    assert_eq!(below(&all), expected);
    assert_eq!(below(&world.run(&["log", "--limit", "2"])), expected[3..]);
    assert_eq!(
        below(&world.run(&["log", "--from", "1", "--limit", "2"])),
        expected[1..3]
    );
    assert!(
        world.run(&["log", "--from", "5"]).out.is_empty(),
        "nothing yet, and no error"
    );
}

#[tokio::test]
async fn log_as_json_is_an_object_a_line() {
    let ran = small().await.run(&["log", "--json"]);
    let lines: Vec<Value> = ran
        .out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[1]["version"], 1);
    assert_eq!(
        lines[1]["steps"],
        serde_json::json!({ "first": 0, "last": 2 })
    );
    assert_eq!(lines[1]["entries"][0]["verdict"], "applies");
    assert_eq!(lines[1]["entries"][0]["entry"]["kind"], "batch");
    assert_eq!(lines[1]["commit"].as_str().unwrap().len(), 32);
}

#[tokio::test]
async fn log_reads_the_past_behind_snapshots() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    for _ in 0..300 {
        world.commit(&mut p0, 1).await;
    }
    p0.log_mut().settle_snapshots().await;
    assert_ne!(world.json(&["status"])["snapshots"], serde_json::json!([]));
    world
        .run(&["log", "--from", "299"])
        .prints(&["299", "-> steps 299"]);
    world
        .run(&["log", "--from", "3", "--limit", "1"])
        .prints(&["seq 2: 1 TGB", "-> steps 2"]);
    assert_eq!(world.json(&["status", "--at", "9"])["head"]["steps"], 9);
}

#[tokio::test]
async fn following_ends_with_the_stream() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    let follower = command(&["log", "--follow", "--store", &world.url()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    world.commit(&mut p0, 2).await;
    p0.finish().await;
    let output = tokio::task::spawn_blocking(|| follower.wait_with_output().unwrap())
        .await
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 4);
    world
        .run(&["status"])
        .prints(&["end        all producers have finished: 2 steps\n"]);
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_failure() {
    let world = small().await;
    let mut child = command(&["log", "--store", &world.url()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn show_tells_where_a_step_lies() {
    let world = small().await;
    let ran = world.run(&["show", "1"]);
    ran.prints(&[
        "producer  p0, term 1, seq 1\n",
        "version   1\n",
        "8 rows, 64 tokens",
        "SLICES  OFFSET  BYTES  OBJECT\n",
    ]);
    assert!(!ran.out.contains("CRC32C"), "nothing is read unasked");
    let shown = world.json(&["show", "1"]);
    assert_eq!(shown["producer"], "p0");
    assert_eq!(shown["tgb"]["parts"][0]["slices"], 4);
    assert_eq!(shown["slices"], Value::Null);
}

#[tokio::test]
async fn show_reads_slices_and_values() {
    let world = small().await;
    world.run(&["show", "2", "--slices"]).prints(&[
        "SLICE  OFFSET  BYTES  CRC32C    VERDICT\n",
        "all slices are whole and match the digest\n",
    ]);
    world
        .run(&["show", "2", "--slice", "3", "--values", "4"])
        .prints(&["tokens  U16 [2, 9]\n  203 204 205 206 ...\n"]);
    let shown = world.json(&["show", "2", "--slices", "--slice", "1"]);
    assert_eq!(shown["digest_matches"], true);
    assert_eq!(shown["slices"].as_array().unwrap().len(), 4);
    assert_eq!(shown["slices"][0]["crc32c"].as_str().unwrap().len(), 8);
    assert_eq!(shown["arrays"][0]["first"][0], 201);
}

#[tokio::test]
async fn a_seal_ends_a_stream_until_it_is_undone() {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 2).await;
    let seal = ["seal", "--reason", "enough"];
    world
        .run(&seal)
        .prints(&["sealed, by version 2\n", "ends with 2 steps"]);
    world.run(&seal).prints(&["sealed, as before\n"]);
    assert_eq!(world.json(&["status"])["end"], 2);
    let undone = world.json(&["seal", "--undo", "--reason", "more came"]);
    assert_eq!(
        (&undone["sealed"], &undone["version"]),
        (&Value::from(false), &Value::from(3))
    );
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 1).await;
    world
        .run(&["log"])
        .prints(&["sealed: enough", "unsealed: more came", "-> steps 2"]);
}
