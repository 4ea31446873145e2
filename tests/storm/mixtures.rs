//! Storms over changes of the mixture: daemons with three sources, killed at random over a faulty store, while a person
//! changes the mixture. Their batches must be those of producers that knew all changes before and lived on.

use std::time::Instant;

use batchweave_tests::seed;

use crate::alone;
use crate::ordered::{
    CHANGE_AT, Content, Daemons, FAULTS, Scene, WITHIN, three_sources, write_sources,
};

const PRODUCERS: Daemons = &[("p0", &[]), ("p1", &[])];
/// Five lanes in two daemons; and each in one of its own.
pub(super) const TWO: Daemons = &[("d0", &["l0", "l3"]), ("d1", &["l1", "l2", "l4"])];
pub(super) const FIVE: Daemons = &[
    ("d0", &["l0"]),
    ("d1", &["l1"]),
    ("d2", &["l2"]),
    ("d3", &["l3"]),
    ("d4", &["l4"]),
];

/// Runs a storm and the calm run with its changes. Returns kills, epochs and batches.
fn storm(daemons: (Daemons, Daemons), seed: u64) -> (u64, u64, usize) {
    let mut wild = Scene::new(daemons.0, seed, Some(FAULTS));
    let sources = wild.path("sources");
    write_sources(&sources, daemons.0, seed);
    let input = three_sources(&sources);
    let kills = wild.rage(&input, &mut ());
    let found = wild.content();
    check(daemons.1, &wild, &input, &found, seed);
    wild.runtime.block_on(wild.server.shutdown());
    (kills, found.epochs, found.digests.len())
}

/// Checks that daemons without kills and faults, to which all changes are known, make the same stream.
pub(super) fn check(daemons: Daemons, wild: &Scene, input: &str, found: &Content, seed: u64) {
    assert_eq!(found.changes.len(), CHANGE_AT.len());
    let mut calm = Scene::new(daemons, seed, None);
    (calm.shape, calm.steps) = (wild.shape, wild.steps);
    // A change may begin with a batch that producers without a bound would have passed.
    calm.configure(input, Some(1));
    calm.repeat(&found.changes);
    calm.configure(input, None);
    for (name, mut process) in calm.start_all() {
        assert_eq!(process.wait(WITHIN), Some(0), "{}", calm.log_text(name));
    }
    let expected = calm.content();
    let differs = found
        .digests
        .iter()
        .zip(&expected.digests)
        .find(|(a, b)| a != b);
    assert_eq!(differs, None, "seed {seed}, changes {:?}", found.changes);
    assert_eq!(found.digests.len(), expected.digests.len());
    calm.runtime.block_on(calm.server.shutdown());
}

fn storms(daemons: (Daemons, Daemons), count: u64) {
    let _alone = alone();
    let first = seed();
    let (began, mut kills, mut epochs, mut batches) = (Instant::now(), 0, 0, 0);
    for seed in first..first + count {
        let (killed, opened, made) = storm(daemons, seed);
        (kills, epochs, batches) = (kills + killed, epochs + opened, batches + made);
    }
    assert!(kills > 0, "no process was killed");
    println!(
        "{}",
        serde_json::json!({
            "storms": count, "seed": first, "seconds": began.elapsed().as_secs_f64(),
            "kills": kills, "epochs": epochs, "batches": batches,
        })
    );
}

#[test]
fn a_storm_over_changes_of_the_mixture() {
    storms((PRODUCERS, PRODUCERS), 1);
}

#[test]
#[ignore = "takes long; make test-long runs it"]
fn hundred_storms_over_changes_of_the_mixture() {
    storms((PRODUCERS, PRODUCERS), 100);
}

#[test]
fn a_storm_over_lanes_that_daemons_take_from_each_other() {
    storms((TWO, FIVE), 1);
}

#[test]
#[ignore = "takes long; make test-long runs it"]
fn hundred_storms_over_lanes_that_daemons_take_from_each_other() {
    storms((TWO, FIVE), 100);
}
