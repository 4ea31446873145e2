//! Ledgers that are missing: the run is not proved, and `--mend` stores them.

use super::*;

/// The store was unreachable when the nodes of an attempt ended: the next one shows what its ranks received.
#[tokio::test]
async fn ledgers_that_an_ended_node_did_not_store_are_mended() {
    let run = Run::honest().await;
    for node in ["0", "1"] {
        fs::remove_file(run.path(0, 8, node)).unwrap();
    }
    run.lacks(
        8,
        &["coordinate 0 of attempt 0 received steps 8..9", "--mend"],
    );
    let report = run.world.run(&["verify", "--job", JOB, "--json"]);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let (proved, holes) = (
        &report["lineage"][0]["proved"],
        &report["lineage"][0]["holes"],
    );
    assert_eq!(
        (proved, &holes[3]),
        (&false.into(), &serde_json::json!([3, 8, 10]))
    );
    run.world
        .run(&["verify", "--job", JOB, "--mend"])
        .prints(&["proved: steps 0..39, 38 in all"]);
}

#[tokio::test]
async fn what_is_behind_the_last_ledger_is_not_proved() {
    let run = Run::honest().await;
    let job = format!("{JOB}@{}", run.opened);
    run.world.mark(&job, 5, 40, Some(3)).await;
    let verify = ["verify", "--job", JOB];
    run.world.run(&verify).prints(&[
        "proved: steps 0..39, 38 in all",
        "compared: ",
        "with the digests in the log, progress none, marks to step 40",
    ]);
    fs::remove_file(run.path(5, 38, "1")).unwrap();
    let behind = "coordinate 3 of attempt 5 came to step 40 by its progress or marks, but its ledgers end \
                  at step 38";
    run.world.run(&verify).fails(66, &["not proved", behind]);
    let report = run.world.run(&["verify", "--job", JOB, "--json"]);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let found = ["verdict", "to", "mark"].map(|name| report[name].to_string());
    assert_eq!(found, ["\"not proved\"", "38", "40"]);
    let mend = ["verify", "--job", JOB, "--mend"];
    run.world.run(&mend).prints(&[
        "mended: 2 steps by rank from the objects' indexes, in 1 ledger",
        "proved: steps 0..37, 36 in all",
    ]);
    let run = Run::honest().await;
    let job = format!("{JOB}@{}", run.opened);
    run.world.mark(&job, 5, 40, None).await;
    for attempt in [0, 1, 3, 4, 5] {
        fs::remove_dir_all(run.path(attempt, 0, "0").parent().unwrap()).unwrap();
    }
    run.world
        .run(&verify)
        .fails(66, &["coordinate 0 of attempt 0 received steps 0..9"]);
    run.world.run(&mend).prints(&[
        "proved: steps 0..39, 38 in all",
        "all of them are marked as trained, by the checkpoint at step 40: that is the trainer's word, and no proof",
    ]);
}

#[tokio::test]
async fn a_run_of_which_no_ledger_tells_is_not_proved() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 5).await;
    let opened = world.json(&["job", "open", JOB])["version"]
        .as_u64()
        .unwrap();
    world.attempt(JOB, 2, 0, None).await;
    let verify = ["verify", "--job", JOB];
    world
        .run(&verify)
        .fails(66, &["no ledger tells of any step"]);
    world.mark(&format!("{JOB}@{opened}"), 0, 5, None).await;
    let behind = "coordinate 0 of attempt 0 came to step 5 by its progress or marks, but its ledgers end at \
                  step 0 (and 1 coordinate more)";
    world.run(&verify).fails(66, &[behind]);
}

/// Holes are filled from the indexes while the data exists, and reported otherwise.
#[tokio::test]
async fn mending_tells_what_the_indexes_have() {
    let run = Run::honest().await;
    for (attempt, first, node) in [(0, 4, "1"), (1, 10, "0"), (5, 30, "0"), (5, 38, "0")] {
        fs::remove_file(run.path(attempt, first, node)).unwrap();
    }
    run.world
        .run(&["verify", "--job", JOB])
        .fails(66, &["gap", "received steps 4..7"]);
    run.world.run(&["verify", "--job", JOB, "--mend"]).prints(&[
        "mended: 24 steps by rank from the objects' indexes, in 3 ledgers",
        "proved: steps 0..37, 36 in all",
    ]);
    run.world
        .run(&["verify", "--job", JOB])
        .prints(&["proved: steps 0..37, 36 in all"]);

    let run = Run::honest().await;
    fs::remove_file(run.path(0, 4, "1")).unwrap();
    fs::remove_dir_all(run.world.path("data")).unwrap();
    let ran = run.world.run(&["verify", "--job", JOB, "--mend"]);
    assert!(
        ran.out
            .contains("not mended: steps 4..7 of coordinate 2, attempt 0: "),
        "{}",
        ran.out
    );
    ran.fails(66, &["gap"]);
}
