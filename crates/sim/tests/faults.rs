//! Worlds full of faults: 300 seeds always, 10,000 among the tests that take long; the same seed
//! gives the same run, here and in another process.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::Command;
use std::thread;

use batchweave_sim::command::faults::{explain, one};

/// Runs the seeds on two threads; each world has its own runtime.
fn seeds_are_clean(from: u64, to: u64) {
    let shard = |odd: u64| {
        thread::spawn(move || {
            for seed in (from..to).filter(|seed| seed % 2 == odd) {
                let (evidence, violations) = one(seed).unwrap();
                if !violations.is_empty() {
                    return Some(explain(evidence, violations).unwrap());
                }
            }
            None
        })
    };
    let shards = [shard(0), shard(1)];
    let stories = shards.into_iter().filter_map(|s| s.join().unwrap());
    let stories: Vec<_> = stories.collect();
    assert!(stories.is_empty(), "{}", stories.join("\n"));
}

#[test]
fn three_hundred_worlds() {
    seeds_are_clean(0, 300);
}

#[test]
#[ignore = "takes minutes; make test-long runs it"]
fn ten_thousand_worlds() {
    seeds_are_clean(300, 10_300);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 17, 42, 99] {
        let (first, _) = one(seed).unwrap();
        let (second, _) = one(seed).unwrap();
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.events.len(), second.events.len(), "seed {seed}");
        let (other, _) = one(seed + 1000).unwrap();
        assert_ne!(first.hash, other.hash, "seed {seed}");
    }
}

#[test]
fn another_process_gives_the_same_run() {
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_batchweave-sim"))
            .args(["faults", "--seeds", "3..9", "--json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run();
    assert_eq!(first, run());
    let (here, _) = one(3).unwrap();
    let hash = format!("{:016x}", here.hash);
    assert!(
        first.lines().next().unwrap().contains(&hash),
        "{hash}: {first}"
    );
}

/// Checks that the worlds contain the faults that they are made of.
#[test]
fn the_worlds_hold_what_they_should() {
    let (mut crashes, mut fenced, mut snapshots, mut segments, mut intents) = (0, 0, 0, 0, 0);
    let (mut late, mut combined) = (0, 0);
    for seed in 0..100 {
        let (evidence, _) = one(seed).unwrap();
        for event in &evidence.events {
            if let batchweave_sim::trace::What::Note(text) = &event.what {
                crashes += usize::from(text == "died");
                fenced += usize::from(text == "was fenced");
            }
        }
        for landed in &evidence.landed {
            snapshots += usize::from(landed.key.starts_with("snapshots/"));
            segments += usize::from(landed.key.starts_with("index/"));
            intents += usize::from(landed.key.starts_with("intents/"));
            if landed.key.starts_with("log/") {
                // A faulty program leaves half records.
                let record: serde_json::Value =
                    serde_json::from_slice(&landed.body).unwrap_or_default();
                let entries = record["entries"].as_array();
                combined += usize::from(entries.is_some_and(|entries| entries.len() > 1));
            }
        }
        late += late_landings(&evidence.events);
    }
    let seen = [
        crashes, fenced, snapshots, segments, intents, late, combined,
    ];
    println!(
        "crashes, fenced, snapshots, segments, intents, late puts, combining records: {seen:?}"
    );
    assert!(seen.iter().all(|&n| n > 0), "{seen:?}");
}

/// Checks that people, faulty programs and wrong reads have effects, also on snapshots.
#[test]
fn the_worlds_are_hostile_enough() {
    let counted = [
        "flipped, short and long reads of records",
        "of snapshots",
        "of intents",
        "of stream.json",
        "of index segments or repairs",
        "seals",
        "seals undone",
        "snapshots under a seal",
        "retirements",
        "mixtures",
        "repairs",
        "twins that were fenced",
    ];
    let mut seen = [0_usize; 12];
    for seed in 0..150 {
        let (evidence, _) = one(seed).unwrap();
        let twins = evidence.plan.twins.len();
        for event in &evidence.events {
            use batchweave_sim::trace::{Answer, What};
            let class = event.key.split(['/', '.']).next().unwrap();
            match &event.what {
                What::Answered(Answer::Lied) => match class {
                    "log" => seen[0] += 1,
                    "snapshots" => seen[1] += 1,
                    "intents" => seen[2] += 1,
                    "stream" => seen[3] += 1,
                    _ => seen[4] += 1,
                },
                What::Note(text) => seen[11] += usize::from(text == "was fenced" && twins > 0),
                _ => {}
            }
        }
        for landed in &evidence.landed {
            let text = String::from_utf8_lossy(&landed.body);
            let log = landed.key.starts_with("log/");
            let has =
                |kind: &str| usize::from(log && text.contains(&format!("\"kind\":\"{kind}\"")));
            seen[5] += has("sealed");
            seen[6] += has("unsealed");
            let snapshot = landed.key.starts_with("snapshots/");
            seen[7] += usize::from(snapshot && text.contains("\"sealed\":true"));
            seen[8] += has("retired");
            seen[9] += has("mixture");
            seen[10] += usize::from(landed.key.starts_with("repairs/"));
        }
    }
    println!("{counted:?}: {seen:?}");
    assert!(seen.iter().all(|&n| n > 0), "{counted:?}: {seen:?}");
}

/// Counts puts that took effect after their answer, or after their sender was gone.
fn late_landings(events: &[batchweave_sim::trace::Event]) -> usize {
    use batchweave_sim::trace::What;
    let mut answered = std::collections::BTreeSet::new();
    let mut late = 0;
    for event in events {
        match event.what {
            What::Answered(_) => {
                answered.insert(event.request);
            }
            What::Landed { created: true } => {
                late += usize::from(answered.contains(&event.request))
            }
            _ => {}
        }
    }
    late
}
