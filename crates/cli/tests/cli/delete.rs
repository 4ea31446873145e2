//! `delete`: what it shows, what it refuses, and what an interruption leaves.

use std::fs;

use batchweave_core::keys;
use bytes::Bytes;

use crate::world::World;

/// Eight steps by p0, which is retired, and a file of somebody else.
async fn stream() -> World {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 8).await;
    let retire = ["retire", "p0", "--reason", "done"];
    assert_eq!(world.run(&retire).code, 0);
    fs::write(world.path("notes.txt"), "mine").unwrap();
    world
}

async fn keys_of(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let store = world.store().await;
    let visit = |object: batchweave_store::ObjectMeta| found.push(object.key);
    batchweave_store::list_all(store.as_ref(), "", visit)
        .await
        .unwrap();
    found.sort();
    found
}

#[tokio::test]
async fn a_dry_run_shows_objects_and_bytes_and_deletes_nothing() {
    let world = stream().await;
    let before = keys_of(&world).await;
    let url = world.url();
    world.run(&["delete", &url]).prints(&[
        &url,
        "\ndata          1  ",
        "\nlog           3  ",
        "\nstream        1  ",
        "not BatchWeave's, left: 1 object (notes.txt)\n",
        "nothing was deleted; --apply deletes it",
    ]);
    let report = world.json(&["delete"]);
    assert_eq!(report["deleted"], serde_json::Value::Null);
    let objects = report["total"]["objects"].as_u64().unwrap();
    assert_eq!(objects as usize, before.len() - 1, "{report}");
    assert!(report["total"]["bytes"].as_u64().unwrap() > 1024);
    assert_eq!(keys_of(&world).await, before);
}

#[tokio::test]
async fn it_deletes_all_objects_of_the_stream_and_no_other() {
    let world = stream().await;
    let asked = world.run(&["delete", "--apply"]);
    asked.fails(64, &["there is no terminal; repeat with --yes"]);
    assert_eq!(world.run(&["status"]).code, 0);
    let deleted = world.run(&["delete", "--yes"]);
    deleted.prints(&["objects deleted; the stream is gone"]);
    assert_eq!(keys_of(&world).await, ["notes.txt"]);
    assert!(!world.path("log").exists() && !world.path("data").exists());
    world
        .run(&["delete", "--yes"])
        .fails(73, &["nothing to delete"]);
    // The file of somebody else keeps the root from becoming a stream again by accident.
    assert_eq!(world.init("", &[]).code, 73);
}

#[tokio::test]
async fn a_stream_in_use_is_not_deleted_without_force() {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 2).await;
    assert_eq!(world.run(&["job", "open", "llm"]).code, 0);
    let before = keys_of(&world).await;
    world.run(&["delete"]).prints(&[
        "job llm is open; run `batchweave job close llm --reason TEXT`\n",
        "producer p0 is open, as host:1; stop it, and run `batchweave retire p0 --reason TEXT`\n",
        "nothing was deleted; --apply --force deletes it nevertheless\n",
    ]);
    let refused = world.run(&["delete", "--yes"]);
    refused.fails(1, &["looks alive: job llm is open", "--force"]);
    assert_eq!(keys_of(&world).await, before);
    let forced = world.run(&["delete", "--yes", "--force"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_eq!(keys_of(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_interrupted_deletion_leaves_no_stream_and_is_finished_by_the_next() {
    let world = stream().await;
    // The state after the first two requests of a deletion.
    let marker = Bytes::from_static(b"{\"format\":1}");
    let _ = world
        .store()
        .await
        .create(keys::DELETING, marker)
        .await
        .unwrap();
    fs::remove_file(world.path(keys::STREAM)).unwrap();
    world
        .run(&["status"])
        .fails(73, &["stream.json is missing"]);
    assert_eq!(world.init("", &[]).code, 73, "the root is not empty");
    world.run(&["delete"]).prints(&[
        "an earlier deletion was interrupted\n",
        "nothing was deleted",
    ]);
    assert_eq!(world.run(&["delete", "--yes"]).code, 0);
    assert_eq!(keys_of(&world).await, ["notes.txt"]);
}

#[tokio::test]
async fn a_lost_stream_json_is_not_taken_for_a_deletion() {
    let world = stream().await;
    fs::remove_file(world.path(keys::STREAM)).unwrap();
    let refused = world.run(&["delete", "--yes"]);
    refused.fails(1, &["but no stream.json: restore it", "--force"]);
    assert!(world.path("log").exists());
    let shown = world.run(&["delete", "--force"]);
    shown.prints(&["nothing was deleted; --apply --force deletes it nevertheless\n"]);
    assert_eq!(world.run(&["delete", "--yes", "--force"]).code, 0);
    assert_eq!(keys_of(&world).await, ["notes.txt"]);
}

#[tokio::test]
async fn a_damaged_log_counts_as_in_use() {
    let world = stream().await;
    fs::write(world.path(&keys::log(0)), "{}").unwrap();
    let refused = world.run(&["delete", "--yes"]);
    refused.fails(
        1,
        &["its log cannot be read, so nothing is known of its users"],
    );
    assert_eq!(world.run(&["delete", "--yes", "--force"]).code, 0);
}

#[test]
fn two_roots_are_refused() {
    let world = World::with_stream("");
    let ran = world.run(&["delete", &world.url(), "--store", "file:///elsewhere"]);
    ran.fails(64, &["two roots: file:///", "--store file:///elsewhere"]);
}
