//! `verify` of streams: sound ones pass, and every fault is named.

use std::fs;

use batchweave_core::keys;
use batchweave_core::manifest::Bundle;
use serde_json::Value;

use crate::world::World;

async fn filled() -> World {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    for tgbs in [3, 1, 2] {
        world.commit(&mut p0, tgbs).await;
    }
    world
}

/// Returns the first data object that holds a step.
fn object(world: &World, step: &str) -> std::path::PathBuf {
    let part = &world.json(&["show", step])["tgb"]["parts"][0];
    world.path(part["key"].as_str().unwrap())
}

/// Returns the JSON that a failed run printed.
fn failed(world: &World, args: &[&str], parts: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    let ran = world.run(&args);
    ran.fails(76, parts);
    serde_json::from_str(&ran.out).unwrap()
}

#[tokio::test]
async fn a_whole_stream_is_sound() {
    let world = filled().await;
    world.run(&["verify"]).prints(&[
        "log      4 records, dense, all folded",
        "steps    6 steps can be read: 0..5",
        "objects  3 of 3 named ones are there and whole",
        "the stream is sound",
    ]);
    let report = world.json(&["verify", "--data"]);
    assert_eq!(report["data"]["frames"], 24);
    assert_eq!(report["problem_count"], 0);
    world.commit_void_entry().await;
    world.run(&["verify"]).prints(&[
        "void       1 entry: skipped by all readers",
        "version 4, entry 0: term 77 of producer p0",
        "the stream is sound but for what was skipped",
    ]);
}

#[tokio::test]
async fn deleted_or_cut_objects_are_listed() {
    let world = filled().await;
    let (gone, cut) = (object(&world, "1"), object(&world, "3"));
    fs::remove_file(&gone).unwrap();
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    fs::write(cut.with_extension("1.tgb"), "an orphan").unwrap();
    let report = failed(
        &world,
        &["verify"],
        &["is missing: steps 0..2", "and 1 more"],
    );
    assert_eq!(report["objects"]["named"], 3);
    assert_eq!(report["objects"]["whole"], 1);
    assert_eq!(report["objects"]["others"], 1);
    let why = report["problems"][1]["why"].as_str().unwrap();
    assert!(
        why.contains("bytes, the log says") && why.contains("step 3"),
        "{why}"
    );
}

#[tokio::test]
async fn a_flipped_bit_is_found_and_a_run_that_was_stopped_goes_on() {
    let world = filled().await;
    let path = object(&world, "4");
    let mut bytes = fs::read(&path).unwrap();
    bytes[64 + 80] ^= 1;
    fs::write(&path, &bytes).unwrap();
    world.run(&["verify"]).prints(&["sound"]);
    let file = world.path("verify.state");
    let args = ["verify", "--data", "--resume", file.to_str().unwrap()];
    let report = failed(&world, &args, &["data (step 4)", "CRC32C"]);
    assert_eq!(report["data"]["frames"], 24);
    // The state of a run that was killed after three steps.
    let state = fs::read_to_string(&file).unwrap();
    let mut state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(
        (&state["next_step"], &state["problems"][0]["step"]),
        (&6.into(), &4.into())
    );
    state["next_step"] = 3.into();
    state["problems"] = Value::Array(Vec::new());
    fs::write(&file, state.to_string()).unwrap();
    let report = failed(&world, &args, &["data (step 4)"]);
    assert_eq!(report["data"]["from"], 3);
    assert_eq!(report["data"]["frames"], 12);
    let report = failed(&world, &args, &["data (step 4)"]);
    assert_eq!(report["data"]["frames"], 0, "what was found is remembered");
    state["stream"] = "00000000-0000-4000-8000-000000000000".into();
    fs::write(&file, state.to_string()).unwrap();
    world
        .run(&args)
        .fails(65, &["--resume", "is of stream 0000"]);
}

#[tokio::test]
async fn a_damaged_index_or_trailer_is_found_though_no_slice_needs_it() {
    for (from_end, what) in [(64, "index"), (1, "trailer")] {
        let world = filled().await;
        let path = object(&world, "4");
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() - from_end - usize::from(from_end > 1) * 8;
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        world.run(&["verify"]).prints(&["sound"]);
        let report = failed(&world, &["verify", "--data"], &["its index is not usable"]);
        let step = &report["problems"][0]["step"];
        assert!(step == 3 || step == 4, "{what}: {report}");
    }
}

#[tokio::test]
async fn copies_must_be_what_the_log_folds_to() {
    let world = filled().await;
    let log = world.log().await;
    let (version, bytes) = log.manifest().snapshot().unwrap();
    let path = world.path(&keys::snapshot(version));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, &bytes).unwrap();
    world
        .run(&["verify"])
        .prints(&["copies   1 snapshot and 0 index segments are what the log"]);
    let mut older = log.manifest().clone();
    let _ = older.fold_repaired(b"x");
    let (next, mut bytes) = older.snapshot().unwrap();
    fs::rename(&path, world.path(&keys::snapshot(next))).unwrap();
    failed(
        &world,
        &["verify"],
        &[&keys::snapshot(next), "the log has no such version"],
    );
    bytes = String::from_utf8(bytes)
        .unwrap()
        .replace("\"next_step\":6", "\"next_step\":5")
        .into();
    fs::remove_file(world.path(&keys::snapshot(next))).unwrap();
    fs::write(&path, bytes).unwrap();
    failed(&world, &["verify"], &[&keys::snapshot(version), "digest"]);
}

#[tokio::test]
async fn bundles_must_have_the_records_of_the_log() {
    let world = filled().await;
    let log = world.log().await;
    let (stream, next) = (log.manifest().stream_id(), log.manifest().next_version());
    let record = |version| fs::read_to_string(world.path(&keys::log(version))).unwrap();
    let store = |records: Vec<String>, last: u64| {
        let bundle = Bundle {
            format: 1,
            stream,
            first: last + 1 - records.len() as u64,
            records,
        };
        let path = world.path(&keys::bundle(last));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bundle.to_json()).unwrap();
    };
    store((0..next).map(record).collect(), next - 1);
    world
        .run(&["verify"])
        .prints(&["are what the log folds to", "; 1 bundle of its records"]);
    // Of a fork that the log does not have.
    store(vec![record(next - 1), "{}".to_owned()], next);
    let report = failed(
        &world,
        &["verify"],
        &[&keys::bundle(next), "the log does not have"],
    );
    assert_eq!(report["copies"]["bundles"], 1);
    fs::remove_file(world.path(&keys::bundle(next))).unwrap();
    // Its last record is that of the log, but not the one before.
    let forged = record(next - 2).replacen("\"leads\":false", "\"leads\":true", 1);
    store(vec![forged, record(next - 1)], next - 1);
    let version = format!("another record of version {} than the log", next - 2);
    failed(&world, &["verify"], &[&keys::bundle(next - 1), &version]);
}

#[tokio::test]
async fn a_record_behind_a_hole_is_found() {
    let world = filled().await;
    let last = world.path(&keys::log(3));
    fs::rename(&last, world.path(&keys::log(9))).unwrap();
    world
        .run(&["verify"])
        .fails(76, &["gap", &keys::log(3), "version 9 exists"]);
}
