//! Two instances of one producer: the old one is frozen, replaced and woken. An undisturbed run beside
//! it checks that the same input gives the same batches in spite of that.

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
        scene.log_text("calm-only.log")
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
    assert_eq!(
        old.wait(MINUTE),
        FENCED,
        "{}",
        scene.log_text("fight-old.log")
    );
    assert_eq!(
        new.wait(MINUTE),
        Some(0),
        "{}",
        scene.log_text("fight-new.log")
    );
    let log_text = scene.log_text("fight-old.log");
    assert!(
        log_text.contains("term 2") && log_text.contains("fenced"),
        "{log_text}"
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
        scene.log_text("calm-only.log")
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
            Some(code) => panic!("exit {code}: {}", scene.log_text("stormy-any.log")),
        }
    }
    eprintln!("{kills} kills");
    assert_eq!(scene.digests("stormy"), scene.digests("calm"));
}
