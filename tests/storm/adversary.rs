//! Storms over lanes and changes of the mixture with an adversary in the background: processes sleep for seconds, the
//! store is down for seconds, and a holder of a producer's rights forges copies of the log (`forger`). The stream must be
//! that of calm daemons, and the job's run must be proved over each step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_core::ids::Step;
use batchweave_tests::{Process, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::alone;
use crate::forger::{Forged, Forger};
use crate::job::{Job, LLM, Programs};
use crate::mixtures::{FIVE, TWO, check};
use crate::ordered::{FAULTS, Scene, three_sources, write_sources};

/// One slice per data coordinate of the crowd, which is large enough that its followers read bundles.
const SHAPE: (u32, u32, u32) = (512, 1, 4);
const STEPS: u64 = 120;
/// One rank of a crowd, in a daemon of its own.
const CROWD: Programs = Programs {
    job: "crowd",
    daemon: "crowd",
    ranks: &["x0"],
    world: 512,
};
/// The time between two events of the adversary, and the time for which a process sleeps or the store is down: daemons
/// take lanes over after a second.
const BETWEEN: std::ops::Range<f64> = 0.2..1.0;
const LASTS: std::ops::Range<f64> = 0.1..3.0;

/// A part of a storm beside its kills and changes.
pub(super) trait Beside {
    /// Is called again and again; `changed` says that all changes are made.
    fn act(&mut self, scene: &mut Scene, running: &[(&'static str, Process)], changed: bool);
    /// Returns true when the storm need not wait for it.
    fn has_ended(&self) -> bool;
    /// Changes what a person changes in a run; returns false to be called again.
    fn change(&mut self, scene: &mut Scene) -> bool {
        scene.change()
    }
}

impl Beside for () {
    fn act(&mut self, _: &mut Scene, _: &[(&'static str, Process)], _: bool) {}

    fn has_ended(&self) -> bool {
        true
    }
}

/// The figures of one or several storms.
#[derive(Debug, Default)]
struct Summary {
    kills: u64,
    sleeps: u64,
    outages: u64,
    forged: Forged,
    steps: usize,
}

struct Adversary {
    rng: StdRng,
    next: Instant,
    asleep: Option<(u32, Instant)>,
    forger: Forger,
    jobs: [Job; 2],
    /// The log has a snapshot.
    long: bool,
    started: bool,
    summary: Summary,
}

impl Adversary {
    fn new(scene: &Scene, seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            next: Instant::now(),
            asleep: None,
            forger: Forger::new(seed),
            jobs: [Job::new(scene, LLM), Job::new(scene, CROWD)],
            long: false,
            started: false,
            summary: Summary::default(),
        }
    }

    fn after(&mut self, range: std::ops::Range<f64>) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.rng.random_range(range))
    }

    /// Wakes the process that sleeps, or lets one sleep.
    fn sleep(&mut self, ids: &[u32]) {
        let id = ids[self.rng.random_range(0..ids.len())];
        if self.asleep.is_none() && signal("STOP", id) {
            self.asleep = Some((id, self.after(LASTS)));
            self.summary.sleeps += 1;
        }
    }

    fn wake(&mut self) {
        let over = |until: Instant| Instant::now() >= until;
        if let Some((id, _)) = self.asleep.take_if(|(_, until)| over(*until)) {
            signal("CONT", id);
        }
    }

    /// Its end is a task: the storm itself waits for the store at times.
    fn take_down(&mut self, scene: &Scene) {
        let faults = Arc::clone(scene.server.faults());
        let lasts = Duration::from_secs_f64(self.rng.random_range(LASTS));
        faults.set_down(true);
        self.summary.outages += 1;
        scene.runtime.spawn(async move {
            tokio::time::sleep(lasts).await;
            faults.set_down(false);
        });
    }
}

impl Beside for Adversary {
    fn act(&mut self, scene: &mut Scene, running: &[(&'static str, Process)], changed: bool) {
        // Before the changes are made, a job would let the producers pass their bound.
        if changed && !self.started {
            self.started = true;
            for job in &mut self.jobs {
                job.start_all(scene);
            }
        }
        for job in &mut self.jobs {
            job.supervise(scene);
        }
        self.wake();
        self.long = self.long || self.forger.lengthen(scene);
        if Instant::now() < self.next {
            return;
        }
        self.next = self.after(BETWEEN);
        let daemons = running.iter().map(|(_, process)| process.0.id());
        let ids: Vec<u32> = daemons.chain(self.jobs.iter().flat_map(Job::ids)).collect();
        match self.rng.random_range(0..8) {
            _ if scene.server.faults().is_down() => {}
            0 => self.take_down(scene),
            1..=3 if !ids.is_empty() => self.sleep(&ids),
            _ => self.summary.forged += self.forger.forge(scene),
        }
    }

    fn has_ended(&self) -> bool {
        self.started && self.jobs.iter().all(Job::has_ended)
    }
}

/// Returns false if the process has ended.
fn signal(name: &str, id: u32) -> bool {
    let (name, id) = (format!("-{name}"), id.to_string());
    let sent = std::process::Command::new("kill").args([name, id]).output();
    sent.unwrap().status.success()
}

fn storm(seed: u64) -> Summary {
    let mut wild = Scene::new(TWO, seed, Some(FAULTS));
    (wild.shape, wild.steps) = (SHAPE, STEPS);
    let sources = wild.path("sources");
    write_sources(&sources, TWO, seed);
    let input = three_sources(&sources);
    let mut adversary = Adversary::new(&wild, seed);
    let kills = wild.rage(&input, &mut adversary);
    wild.server.faults().set_down(false);
    if let Some((id, _)) = adversary.asleep {
        signal("CONT", id);
    }
    let found = wild.content();
    let Adversary {
        jobs: [mut llm, mut crowd],
        mut summary,
        ..
    } = adversary;
    crowd.stop();
    llm.verify(&wild, found.digests.len() as Step);
    check(FIVE, &wild, &input, &found, seed);
    wild.runtime.block_on(wild.server.shutdown());
    (summary.kills, summary.steps) = (kills, found.digests.len());
    summary
}

fn storms(count: u64) {
    let _alone = alone();
    let first = seed();
    let (began, mut all) = (Instant::now(), Summary::default());
    for seed in first..first + count {
        let one = storm(seed);
        println!("seed {seed}: {one:?}");
        all.kills += one.kills;
        all.sleeps += one.sleeps;
        all.outages += one.outages;
        all.forged += one.forged;
        all.steps += one.steps;
    }
    println!("{count} storms in {:.0?}: {all:?}", began.elapsed());
    assert!(all.kills > 0, "no process was killed");
    // One storm may be too short for an event that is drawn.
    let each = all
        .forged
        .bundles
        .min(all.forged.snapshots)
        .min(all.sleeps)
        .min(all.outages);
    assert!(count == 1 || each > 0, "{all:?}");
}

#[test]
#[ignore = "takes two minutes; make test-long runs it"]
fn a_storm_with_a_forger_sleepers_and_outages() {
    storms(1);
}

#[test]
#[ignore = "takes long; make test-long runs it"]
fn twenty_storms_with_a_forger_sleepers_and_outages() {
    storms(20);
}
