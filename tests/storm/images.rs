//! Storms over images with captions that a function of the user changes: processes of the producers, of the function, of
//! the consumer daemon and of the ranks are killed at random over a faulty store. Each step that the ranks received must
//! be the one that a single producer made that lived on.

mod input;
mod workers;

use std::time::{Duration, Instant};

use batchweave_core::ids::Step;
use batchweave_tests::{Process, seed};
use rand::RngExt;

use self::workers::Workers;
use crate::alone;
use crate::job::{Job, LLM};
use crate::ordered::{Content, Daemons, FAULTS, Scene, WITHIN};

/// Two lanes, each in its own daemon; and both in one.
const WILD: Daemons = &[("d0", &["l0"]), ("d1", &["l1"])];
const CALM: Daemons = &[("d0", &["l0", "l1"])];
/// Programs of the job.
const PROGRAMS: [&str; 3] = [LLM.daemon, LLM.ranks[0], LLM.ranks[1]];
/// Requests of all programs between two kills: as many as two producers make to start and commit.
const KILL_EVERY: u64 = 60;
/// After this many kills the storm is over, since the programs' requests while they wait cause kills, too.
const KILLS_MAX: u64 = 24;

/// The figures of one or several storms.
#[derive(Debug, Default)]
struct Summary {
    kills: u64,
    /// Processes of the function that were killed from outside.
    workers: u64,
    /// Processes of the function that ended at a document.
    deaths: u64,
    epochs: u64,
    batches: usize,
}

/// Runs all programs to their end, and kills one of them or a process of the function again and again.
fn rage(wild: &mut Scene, job: &mut Job) -> (u64, Workers) {
    let (began, mut kills, mut next_kill) = (Instant::now(), 0, KILL_EVERY);
    let mut workers = Workers::default();
    let mut running = wild.start_all();
    job.start_all(wild);
    while !running.is_empty() || !job.has_ended() {
        let requests = wild.server.stats().total();
        if requests >= next_kill && kills < KILLS_MAX {
            next_kill = requests + KILL_EVERY;
            kills += u64::from(kill_one(wild, &mut running, job, &mut workers));
        }
        running = wild.supervise(running);
        job.supervise(wild);
        assert!(
            began.elapsed() < WITHIN,
            "{}\n{}",
            wild.log_text("d0"),
            wild.log_text("consumer")
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    (kills, workers)
}

/// Kills a process drawn among all, those of the function as often as all others. Returns false if it does not run.
fn kill_one(
    wild: &mut Scene,
    running: &mut [(&str, Process)],
    job: &mut Job,
    workers: &mut Workers,
) -> bool {
    let of_function = wild.rng.random_bool(0.5);
    let drawn = wild.rng.random_range(0..WILD.len() + PROGRAMS.len());
    let (daemon, _) = WILD[drawn % WILD.len()];
    let daemon = running.iter_mut().find(|(name, _)| *name == daemon);
    match daemon {
        Some((_, process)) if of_function => workers.kill_one(process.0.id(), &mut wild.rng),
        Some((_, process)) if drawn < WILD.len() => process.0.kill().is_ok(),
        _ => job.kill(PROGRAMS[drawn % PROGRAMS.len()]),
    }
}

fn storm(seed: u64) -> Summary {
    let mut wild = Scene::new(WILD, seed, Some(FAULTS));
    let shards = wild.path("shards");
    let documents = input::write(&shards, seed);
    let (code, deaths) = (wild.path("code"), wild.path("code/deaths"));
    input::write_function(&code);
    std::fs::create_dir(&deaths).unwrap();
    wild.configure(&input::settings(&shards, &code), None);
    let mut job = Job::new(&wild, LLM);
    let (kills, workers) = rage(&mut wild, &mut job);
    let found = wild.content();
    job.verify(&wild, found.digests.len() as Step);
    let expected = calm(&wild, seed);
    let differs = found
        .digests
        .iter()
        .zip(&expected.digests)
        .find(|(a, b)| a != b);
    assert_eq!(differs, None, "seed {seed}");
    assert_eq!(found.digests.len(), expected.digests.len(), "seed {seed}");
    let deaths = std::fs::read_dir(&deaths).unwrap().count() as u64;
    assert_eq!(deaths, input::fatal(documents), "seed {seed}");
    wild.runtime.block_on(wild.server.shutdown());
    Summary {
        kills,
        workers: workers.killed,
        deaths,
        epochs: found.epochs,
        batches: found.digests.len(),
    }
}

/// Returns what one daemon makes of the same documents, without faults or kills.
fn calm(wild: &Scene, seed: u64) -> Content {
    let calm = Scene::new(CALM, seed, None);
    let code = calm.path("code");
    input::write_function(&code);
    calm.configure(&input::settings(&wild.path("shards"), &code), None);
    for (name, mut process) in calm.start_all() {
        assert_eq!(process.wait(WITHIN), Some(0), "{}", calm.log_text(name));
    }
    let content = calm.content();
    calm.runtime.block_on(calm.server.shutdown());
    content
}

fn storms(count: u64) {
    let _alone = alone();
    let first = seed();
    let (began, mut all) = (Instant::now(), Summary::default());
    for seed in first..first + count {
        let one = storm(seed);
        all = Summary {
            kills: all.kills + one.kills,
            workers: all.workers + one.workers,
            deaths: all.deaths + one.deaths,
            epochs: all.epochs + one.epochs,
            batches: all.batches + one.batches,
        };
    }
    assert!(all.kills > 0, "no process was killed");
    println!(
        "{}",
        serde_json::json!({
            "storms": count, "seed": first, "seconds": began.elapsed().as_secs_f64(),
            "kills": all.kills, "workers_killed": all.workers, "workers_died": all.deaths,
            "epochs": all.epochs, "batches": all.batches,
        })
    );
}

#[test]
fn a_storm_over_images_and_a_function() {
    storms(1);
}

#[test]
#[ignore = "takes long; make test-long runs it"]
fn hundred_storms_over_images_and_a_function() {
    storms(100);
}
