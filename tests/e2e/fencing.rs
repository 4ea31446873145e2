//! Two instances of one producer fight: the old one frozen, replaced, woken. And an undisturbed
//! run beside it, since the same input must give the same batches whatever happened.

use std::time::Duration;

use batchweave_tests::{eventually, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::scene::{MINUTE, Scene};

const FENCED: Option<i32> = Some(75);

#[test]
fn the_old_instance_stops_with_its_own_code_and_nothing_is_lost_or_doubled() {
    let scene = Scene::new();
    assert_eq!(
        scene.producer("calm", "only").wait(MINUTE),
        Some(0),
        "{}",
        scene.said("calm-only.log")
    );
    let mut old = scene.producer("fight", "old");
    eventually("the old instance commits", || scene.records("fight") > 3);
    old.signal("STOP");
    let frozen_at = scene.records("fight");
    let mut new = scene.producer("fight", "new");
    eventually("the new instance commits", || {
        scene.records("fight") > frozen_at + 3
    });
    old.signal("CONT");
    assert_eq!(old.wait(MINUTE), FENCED, "{}", scene.said("fight-old.log"));
    assert_eq!(new.wait(MINUTE), Some(0), "{}", scene.said("fight-new.log"));
    let said = scene.said("fight-old.log");
    assert!(
        said.contains("epoch 2") && said.contains("fenced"),
        "{said}"
    );
    assert_eq!(scene.digests("fight"), scene.digests("calm"));
}

#[test]
fn a_producer_killed_at_random_instants_makes_the_same_batches() {
    let scene = Scene::new();
    let mut rng = StdRng::seed_from_u64(seed());
    assert_eq!(
        scene.producer("calm", "only").wait(MINUTE),
        Some(0),
        "{}",
        scene.said("calm-only.log")
    );
    let mut kills = 0;
    loop {
        let mut producer = scene.producer("stormy", "any");
        std::thread::sleep(Duration::from_millis(rng.random_range(5..250)));
        if kills < 8 {
            producer.signal("KILL");
        }
        match producer.wait(MINUTE) {
            None => kills += 1,
            Some(0) => break,
            Some(code) => panic!("exit {code}: {}", scene.said("stormy-any.log")),
        }
    }
    eprintln!("{kills} kills");
    assert_eq!(scene.digests("stormy"), scene.digests("calm"));
}
