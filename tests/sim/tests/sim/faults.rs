//! Worlds full of faults: 51 seeds always, 10,000 among the tests that take long; the same seed
//! gives the same run, here and in another process.

use std::process::Command;
use std::thread;

use batchweave_sim::command::faults::{explain, one};
use batchweave_sim::evidence::Evidence;
use batchweave_sim::trace::{Answer, Event, What};

/// The one world of the first 150 with a wrong read of a snapshot.
const WRONG_SNAPSHOTS: u64 = 119;

/// Runs the seeds on two threads; each world has its own runtime. Returns what each thread saw.
fn seeds_are_clean(seeds: impl Iterator<Item = u64> + Clone + Send + 'static) -> [Seen; 2] {
    let shard = |odd: u64| {
        let seeds = seeds.clone();
        thread::spawn(move || {
            let mut seen = Seen::default();
            for seed in seeds.filter(|seed| seed % 2 == odd) {
                let (evidence, violations) = one(seed).unwrap();
                seen.count(&evidence);
                if !violations.is_empty() {
                    return Err(explain(evidence, violations).unwrap());
                }
            }
            Ok(seen)
        })
    };
    [shard(0), shard(1)].map(|shard| {
        let seen = shard.join().unwrap();
        seen.unwrap_or_else(|story| panic!("{story}"))
    })
}

#[test]
fn fifty_one_worlds() {
    let [mut seen, other] = seeds_are_clean((0..50).chain([WRONG_SNAPSHOTS]));
    seen.add(&other);
    println!("{FAULTS:?}: {:?}", seen.faults);
    println!("{HOSTILE:?}: {:?}", seen.hostile);
    assert!(
        seen.faults.iter().all(|&n| n > 0),
        "{FAULTS:?}: {:?}",
        seen.faults
    );
    assert!(
        seen.hostile.iter().all(|&n| n > 0),
        "{HOSTILE:?}: {:?}",
        seen.hostile
    );
}

#[test]
#[ignore = "takes minutes; make test-long runs it"]
fn ten_thousand_worlds() {
    seeds_are_clean(0..10_000);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [17, 42] {
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
            .args(["faults", "--seeds", "3..6", "--json"])
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

/// The faults that worlds are made of, each of which the 51 contain.
const FAULTS: [&str; 7] = [
    "crashes",
    "fenced",
    "snapshots",
    "segments",
    "intents",
    "late puts",
    "combining records",
];

/// Effects of people, faulty programs and wrong reads, each of which the 51 worlds contain.
const HOSTILE: [&str; 13] = [
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
    "stages",
];

#[derive(Default)]
struct Seen {
    faults: [usize; 7],
    hostile: [usize; 13],
}

impl Seen {
    fn count(&mut self, evidence: &Evidence) {
        self.count_faults(evidence);
        self.count_hostile(evidence);
    }

    fn add(&mut self, other: &Self) {
        let both = |ours: &mut [usize], theirs: &[usize]| {
            ours.iter_mut().zip(theirs).for_each(|(n, more)| *n += more);
        };
        both(&mut self.faults, &other.faults);
        both(&mut self.hostile, &other.hostile);
    }

    fn count_faults(&mut self, evidence: &Evidence) {
        let [
            crashes,
            fenced,
            snapshots,
            segments,
            intents,
            late,
            combined,
        ] = &mut self.faults;
        for event in &evidence.events {
            if let What::Note(text) = &event.what {
                *crashes += usize::from(text == "died");
                *fenced += usize::from(text == "was fenced");
            }
        }
        for landed in &evidence.landed {
            *snapshots += usize::from(landed.key.starts_with("snapshots/"));
            *segments += usize::from(landed.key.starts_with("index/"));
            *intents += usize::from(landed.key.starts_with("intents/"));
            if landed.key.starts_with("log/") {
                // A faulty program leaves half records.
                let record: serde_json::Value =
                    serde_json::from_slice(&landed.body).unwrap_or_default();
                let entries = record["entries"].as_array();
                *combined += usize::from(entries.is_some_and(|entries| entries.len() > 1));
            }
        }
        *late += late_landings(&evidence.events);
    }

    fn count_hostile(&mut self, evidence: &Evidence) {
        let seen = &mut self.hostile;
        let twins = evidence.plan.twins.len();
        for event in &evidence.events {
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
            seen[12] += has("stage");
            seen[10] += usize::from(landed.key.starts_with("repairs/"));
        }
    }
}

/// Counts puts that took effect after their answer, or after their sender was gone.
fn late_landings(events: &[Event]) -> usize {
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
