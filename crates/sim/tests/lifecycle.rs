//! Lifecycle worlds: jobs, attempts, marks, reclaimers and zombies. 100 seeds always, 2,000 among
//! the tests that take long; the same seed gives the same run.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::thread;

use batchweave_sim::command::faults::{explain, one_of};
use batchweave_sim::trace::What;
use batchweave_sim::world::Plan;

/// Runs the seeds on two threads; each world has a runtime of its own.
fn seeds_are_clean(from: u64, to: u64) {
    let shard = |odd: u64| {
        thread::spawn(move || {
            for seed in (from..to).filter(|seed| seed % 2 == odd) {
                let (evidence, violations) = one_of(Plan::draw_life, seed).unwrap();
                if !violations.is_empty() {
                    return Some(explain(evidence, violations).unwrap());
                }
            }
            None
        })
    };
    let shards = [shard(0), shard(1)];
    let stories: Vec<_> = shards
        .into_iter()
        .filter_map(|s| s.join().unwrap())
        .collect();
    assert!(stories.is_empty(), "{}", stories.join("\n"));
}

#[test]
fn a_hundred_lifecycles() {
    seeds_are_clean(0, 100);
}

#[test]
#[ignore = "takes minutes; make test-long runs it"]
fn two_thousand_lifecycles() {
    seeds_are_clean(100, 2_100);
}

#[test]
fn the_same_seed_gives_the_same_lifecycle() {
    for seed in [2, 23, 57] {
        let (first, _) = one_of(Plan::draw_life, seed).unwrap();
        let (second, _) = one_of(Plan::draw_life, seed).unwrap();
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.received, second.received, "seed {seed}");
    }
}

/// The worlds are worth something: what the protocol is afraid of does happen in them.
#[test]
fn lifecycles_hold_what_they_should() {
    let counted = [
        "watermarks",
        "attempts",
        "deleted objects",
        "superseded",
        "refused starts",
        "lost watermarks",
        "closed by a lease",
        "quarantines",
        "steps received",
    ];
    let mut seen = [0; 9];
    for seed in 0..100 {
        let (evidence, _) = one_of(Plan::draw_life, seed).unwrap();
        for landed in evidence.landed.iter().filter(|l| l.key.starts_with("log/")) {
            let text = String::from_utf8(landed.body.to_vec()).unwrap();
            let has = |kind: &str| usize::from(text.contains(&format!("\"kind\":\"{kind}\"")));
            seen[0] += has("watermark");
            seen[1] += has("attempt_opened");
            let reclaimer = evidence.actor(landed.actor).starts_with("reclaimer");
            seen[6] += has("job_closed") * usize::from(reclaimer);
            seen[7] += has("quarantined");
        }
        for event in &evidence.events {
            let key = event.key.as_ref();
            let by_reclaimer = evidence.actor(event.actor).starts_with("reclaimer");
            match &event.what {
                What::Landed { created: true } if by_reclaimer && key.starts_with("data/") => {
                    seen[2] += 1;
                }
                What::Landed { created: false } if by_reclaimer && key.starts_with("log/") => {
                    seen[5] += 1;
                }
                What::Note(text) => {
                    seen[3] += usize::from(text.contains("Superseded"));
                    seen[4] += usize::from(text.contains("Refused"));
                }
                _ => {}
            }
        }
        seen[8] += evidence.received.len();
    }
    println!("{counted:?}: {seen:?}");
    assert!(seen.iter().all(|&n| n > 0), "{counted:?}: {seen:?}");
}
