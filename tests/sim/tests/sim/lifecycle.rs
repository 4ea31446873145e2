//! Lifecycle worlds: jobs, attempts, marks, reclaimers and zombies. 13 seeds always, 2,000 among
//! the tests that take long; the same seed gives the same run.

use std::thread;

use batchweave_sim::command::faults::{explain, one_of};
use batchweave_sim::evidence::Evidence;
use batchweave_sim::plan::Plan;
use batchweave_sim::trace::What;

/// Counts of the dangerous events of the protocol.
type Seen = [usize; 10];
const COUNTED: [&str; 10] = [
    "watermarks",
    "attempts",
    "deleted objects",
    "superseded",
    "refused starts",
    "lost watermarks",
    "closed by a lease",
    "quarantines",
    "steps received",
    "changes by losses",
];

/// Worlds that take as long as all others of the first fifteen.
const LONG_LIVES: [u64; 2] = [9, 11];

/// Runs the seeds on two threads; each world has its own runtime. All counted events must happen in
/// them.
fn seeds_are_clean(seeds: impl Iterator<Item = u64> + Clone + Send + 'static) {
    let shard = |odd: u64| {
        let seeds = seeds.clone();
        thread::spawn(move || {
            let mut seen = Seen::default();
            for seed in seeds.filter(|seed| seed % 2 == odd) {
                let (evidence, violations) = one_of(Plan::draw_lifecycle, seed).unwrap();
                count(&mut seen, &evidence);
                if !violations.is_empty() {
                    return Err(explain(evidence, violations).unwrap());
                }
            }
            Ok(seen)
        })
    };
    let shards = [shard(0), shard(1)];
    let seen = shards.map(|shard| {
        shard
            .join()
            .unwrap()
            .unwrap_or_else(|story| panic!("{story}"))
    });
    println!("{COUNTED:?}: {seen:?}");
    for (n, what) in COUNTED.iter().enumerate() {
        assert!(seen.iter().any(|seen| seen[n] > 0), "no {what}");
    }
}

fn count(seen: &mut Seen, evidence: &Evidence) {
    for landed in evidence.landed.iter().filter(|l| l.key.starts_with("log/")) {
        let text = String::from_utf8(landed.body.to_vec()).unwrap();
        let has = |kind: &str| usize::from(text.contains(&format!("\"kind\":\"{kind}\"")));
        seen[0] += has("watermark");
        seen[1] += has("attempt_opened");
        let reclaimer = evidence.actor(landed.actor).starts_with("reclaimer");
        seen[6] += has("job_closed") * usize::from(reclaimer);
        seen[7] += has("quarantined");
        seen[9] += usize::from(text.contains("\"why\":"));
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

#[test]
fn thirteen_lifecycles() {
    seeds_are_clean((0..15).filter(|seed| !LONG_LIVES.contains(seed)));
}

#[test]
#[ignore = "takes minutes; make test-long runs it"]
fn two_thousand_lifecycles() {
    seeds_are_clean(0..2_000);
}

#[test]
fn the_same_seed_gives_the_same_lifecycle() {
    for seed in [2, 23, 32] {
        let (first, _) = one_of(Plan::draw_lifecycle, seed).unwrap();
        let (second, _) = one_of(Plan::draw_lifecycle, seed).unwrap();
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.received, second.received, "seed {seed}");
    }
}
