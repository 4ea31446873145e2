//! Doctor's findings on folders; s3.rs has those on buckets.

use crate::world::World;

fn verdicts(report: &serde_json::Value) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    let line = |c: &serde_json::Value| format!("{} {}", text(&c["verdict"]), text(&c["name"]));
    checks.iter().map(line).collect()
}

#[tokio::test]
async fn a_sound_stream_passes() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 3).await;
    let report = world.json(&["doctor", "--rounds", "3", "--samples", "4"]);
    let expected = [
        "ok store",
        "ok missing key",
        "ok exclusive create",
        "ok read after write",
        "ok list after write",
        "ok delete",
        "ok ranged read",
        "ok log/",
        "ok data/",
        "ok intents/",
        "ok snapshots/",
        "ok index/",
        "ok jobs/",
        "ok repairs/",
        "ok stream.json",
        "ok requests",
        "ok identity",
        "ok log",
        "ok snapshots",
    ];
    assert_eq!(verdicts(&report), expected);
    assert_eq!(report["ok"], true);
    let latency = report["latency"].as_array().unwrap();
    assert_eq!(latency.len(), 7);
    for row in latency {
        assert_eq!(row["samples"], 4, "{row}");
        assert!(
            row["p50_ms"].as_f64().unwrap() <= row["max_ms"].as_f64().unwrap(),
            "{row}"
        );
    }
    assert!(!world.path("probe").exists(), "something stays");
    world
        .run(&["doctor", "--rounds", "3", "--samples", "4"])
        .prints(&[
            "  ok    exclusive create  one winner in each of 3 races of 16 creates\n",
            "2 records, 3 steps, no gap\n",
            "fit for use: 19 ok",
        ]);
}

#[test]
fn an_empty_root_is_fit_and_a_strangers_is_not() {
    let world = World::new();
    let report = world.json(&["doctor", "--rounds", "1"]);
    assert!(
        verdicts(&report).contains(&"warn stream.json".to_owned()),
        "{report}"
    );
    std::fs::write(world.path("photo.jpg"), "x").unwrap();
    let ran = world.run(&["doctor", "--rounds", "1"]);
    assert_eq!(ran.code, 73);
    assert!(
        ran.out.contains("FAIL  stream.json") && ran.out.contains("photo.jpg"),
        "{ran:?}"
    );
}

#[test]
fn read_only_writes_nothing() {
    let world = World::with_stream("p0");
    let names = || {
        let entries = std::fs::read_dir(world.path("")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let report = world.json(&["doctor", "--read-only"]);
    let found = verdicts(&report);
    assert!(
        found.contains(&"not_checked creates".to_owned()),
        "{report}"
    );
    assert_eq!(names(), before);
}

#[test]
fn a_folder_that_is_not_there_fails() {
    let world = World::new();
    let gone = format!("{}/gone", world.url());
    let ran = world.run(&["doctor", "--store", &gone]);
    assert_eq!(ran.code, 69);
    assert!(
        ran.out.contains("FAIL  folder") && ran.out.contains(&gone),
        "{ran:?}"
    );
}
