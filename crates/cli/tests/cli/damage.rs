//! Stored objects that break the protocol are reported, never skipped.

use std::fs;

use batchweave_core::keys;
use serde_json::Value;

use crate::world::World;

async fn filled() -> World {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 2).await;
    world.commit(&mut p0, 2).await;
    world
}

/// Returns the file and offset of slice `slice` of step 1.
fn place(world: &World, slice: u64) -> (std::path::PathBuf, usize) {
    let part = &world.json(&["show", "1"])["tgb"]["parts"][0];
    let at = |name: &str| part[name].as_u64().unwrap();
    let offset = at("offset") + slice * at("frame_bytes");
    (world.path(part["key"].as_str().unwrap()), offset as usize)
}

#[tokio::test]
async fn a_flipped_bit_is_found_in_its_slice() {
    let world = filled().await;
    let (path, offset) = place(&world, 2);
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset + 64 + 70] ^= 1;
    fs::write(&path, bytes).unwrap();
    let ran = world.run(&["show", "1", "--slices", "--json"]);
    ran.fails(76, &["step 1"]);
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    let faults: Vec<bool> = (0..4)
        .map(|s| !shown["slices"][s]["fault"].is_null())
        .collect();
    assert_eq!(faults, [false, false, true, false]);
    let fault = shown["slices"][2]["fault"].as_str().unwrap();
    assert!(
        fault.contains("CRC32C") && fault.contains("slice 2"),
        "{fault}"
    );
    assert_eq!(shown["digest_matches"], false);
    assert_eq!(
        world.run(&["show", "0", "--slices"]).code,
        0,
        "its neighbour is whole"
    );
    assert_eq!(
        world.run(&["show", "1", "--slice", "1"]).code,
        0,
        "so is its other slice"
    );
    let text = world.run(&["show", "1", "--slice", "2"]);
    assert!(
        text.code == 76 && !text.out.contains("tokens  U16"),
        "wrong bytes are not shown"
    );
}

#[tokio::test]
async fn an_object_that_is_short_or_gone_is_named() {
    let world = filled().await;
    let (path, offset) = place(&world, 3);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..offset]).unwrap();
    let ran = world.run(&["show", "1", "--slices"]);
    ran.fails(76, &["step 1"]);
    fs::remove_file(&path).unwrap();
    let ran = world.run(&["show", "1", "--slices"]);
    ran.fails(76, &["step 1"]);
    assert!(ran.out.contains("data/p0/"), "{ran:?}");
}

#[tokio::test]
async fn a_void_entry_is_shown_and_harms_nothing() {
    let world = filled().await;
    world.commit_void_entry().await;
    let why = "term 77 of producer p0 is not the current one, 1";
    let void = format!("VOID opened p0 term 77 by faulty:1: {why}");
    let log = world.run(&["log"]);
    log.prints(&["abababababab  faulty", &void]);
    assert!(log.err.is_empty(), "it is not said twice: {log:?}");
    let line = world.run(&["log", "--from", "3", "--json"]);
    let line: Value = serde_json::from_str(&line.out).unwrap();
    assert_eq!(line["entries"][0]["verdict"], "void");
    world
        .run(&["status"])
        .prints(&["void       1 entry, 0 whole records: a writer is faulty"]);
    world
        .run(&["doctor", "--rounds", "1"])
        .prints(&["warn  entries"]);
}

#[tokio::test]
async fn a_gap_and_an_unreadable_record_stop_everything() {
    let world = filled().await;
    let middle = world.path(&keys::log(1));
    fs::rename(&middle, world.path("kept")).unwrap();
    for verb in [&["status"][..], &["log"], &["show", "0"]] {
        world.run(verb).fails(76, &["gap", &keys::log(1)]);
    }
    let doctor = world.run(&["doctor", "--rounds", "1"]);
    assert!(
        doctor.code == 76 && doctor.out.contains("FAIL  log"),
        "{doctor:?}"
    );
    fs::write(&middle, r#"{"format":3}"#).unwrap();
    world
        .run(&["status"])
        .fails(76, &[&keys::log(1), "format 3"]);
}
