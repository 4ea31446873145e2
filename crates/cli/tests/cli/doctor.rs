//! What doctor says of folders; s3.rs has what it says of buckets.

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
    let report = world.json(&["doctor", "--rounds", "3"]);
    let expected = [
        "ok store",
        "ok get",
        "ok list",
        "ok create",
        "ok delete",
        "ok exclusive create",
        "ok stream",
        "ok snapshots",
    ];
    assert_eq!(verdicts(&report), expected);
    assert_eq!(report["ok"], true);
    world.run(&["doctor", "--rounds", "3"]).prints(&[
        "ok    exclusive create  exactly one winner in each of 3 races of 16\n",
        "2 records, 3 steps, no gap\n",
    ]);
}

#[test]
fn an_empty_root_is_fit_and_a_strangers_is_not() {
    let world = World::new();
    let report = world.json(&["doctor", "--rounds", "1"]);
    assert!(
        verdicts(&report).contains(&"warn stream".to_owned()),
        "{report}"
    );
    std::fs::write(world.path("photo.jpg"), "x").unwrap();
    let ran = world.run(&["doctor", "--rounds", "1"]);
    assert_eq!(ran.code, 73);
    assert!(
        ran.out.contains("FAIL  stream") && ran.out.contains("photo.jpg"),
        "{ran:?}"
    );
}

#[test]
fn read_only_writes_nothing() {
    let world = World::with_stream("p0");
    let before = std::fs::read_dir(world.path("")).unwrap().count();
    std::fs::remove_dir_all(world.path("probe")).unwrap();
    let report = world.json(&["doctor", "--read-only"]);
    assert!(
        verdicts(&report).contains(&"warn create".to_owned()),
        "{report}"
    );
    assert_eq!(
        std::fs::read_dir(world.path("")).unwrap().count(),
        before - 1
    );
}

#[test]
fn a_folder_that_is_not_there_fails() {
    let world = World::new();
    let gone = format!("{}/gone", world.url());
    let ran = world.run(&["doctor", "--store", &gone]);
    assert_eq!(ran.code, 69);
    assert!(
        ran.out.contains("FAIL  store") && ran.out.contains(&gone),
        "{ran:?}"
    );
}
