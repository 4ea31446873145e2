//! Two jobs of different speed, each with its own consumer daemon and a rank that restarts repeatedly
//! from one of the kept checkpoints, while reclaimers are killed. The bytes are the same each time, no
//! start is refused, and both runs are proved at the end, whether or not their data still exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use batchweave_client::{Client, ConnectOptions, Start};
use batchweave_core::ids::Hash;
use batchweave_tests::{Process, program, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::scene::{MINUTE, Scene};

const KEEP: usize = 2;
const INTERVAL: u64 = 20;
const STREAM: &str = "kept";

/// A job's rank, as a trainer with its own checkpoints would run it.
struct Rank {
    job: &'static str,
    socket: PathBuf,
    step_time: Duration,
    rng: StdRng,
    /// The hash of each step when it was read first.
    bytes: BTreeMap<u64, Hash>,
    /// Its checkpoints, oldest first: step and state; the beginning has no state.
    points: Vec<(u64, Option<String>)>,
    /// The watermark is at most this step.
    low: u64,
    restarts: u64,
    again: u64,
}

impl Rank {
    fn new(job: &'static str, socket: PathBuf, step_time: Duration, seed: u64) -> Self {
        Self {
            job,
            socket,
            step_time,
            rng: StdRng::seed_from_u64(seed),
            bytes: BTreeMap::new(),
            points: vec![(0, None)],
            low: 0,
            restarts: 0,
            again: 0,
        }
    }

    /// Runs one attempt: from one of the kept checkpoints, some steps, a clean end.
    fn attempt(&mut self) {
        let kept = self
            .points
            .iter()
            .filter(|(step, _)| *step >= self.low)
            .count()
            .min(KEEP);
        let back = usize::from(kept > 1 && self.rng.random_bool(0.4));
        self.points.truncate(self.points.len() - back);
        let (from, state) = self.points.last().cloned().unwrap();
        let options = ConnectOptions {
            job: Some(self.job.to_owned()),
            start: state.map_or(Start::Step(0), Start::State),
            timeout: MINUTE,
            ..ConnectOptions::new(&self.socket)
        };
        let mut reader = Client::connect(options).unwrap();
        assert_eq!(reader.next_step(), from, "{}", self.job);
        for _ in 0..self.rng.random_range(30..90) {
            let Some(batch) = reader.next(MINUTE).unwrap() else {
                break;
            };
            let slices: Vec<u8> = batch
                .slices()
                .iter()
                .flat_map(batchweave_client::Slice::bytes)
                .copied()
                .collect();
            let (step, hash) = (batch.step(), Hash::sha256(&slices));
            if let Some(before) = self.bytes.insert(step, hash) {
                assert_eq!(
                    before, hash,
                    "step {step} of {} came with other bytes",
                    self.job
                );
                self.again += 1;
            }
            if (step + 1).is_multiple_of(INTERVAL) {
                let state = batch.state_dict();
                reader.checkpoint(&state).unwrap();
                self.points.push((step + 1, Some(state)));
                let oldest_kept = self.points.len().saturating_sub(KEEP);
                self.low = self.low.max(self.points[oldest_kept].0);
            }
            thread::sleep(self.step_time);
        }
        reader.close(MINUTE).unwrap();
        self.restarts += 1;
    }
}

fn consumer(scene: &Scene, job: &str) -> (Process, PathBuf) {
    let socket = scene.path(&format!("{job}.sock"));
    let file = scene.path(&format!("{job}.toml"));
    let text = format!(
        "[store]\nurl = {:?}\n[job]\nname = {job:?}\nopen = true\nkeep = {KEEP}\nprogress_steps = 8\n\
         [arena]\nbytes = \"8MiB\"\nsegment_bytes = \"1MiB\"\n[socket]\npath = {:?}\n\
         [prefetch]\nbytes = \"256KiB\"\nsteps = 8\n[follow]\nstarved = \"10ms\"\nidle = \"50ms\"\n\
         [admin]\nlisten = \"off\"\n",
        scene.url(STREAM),
        socket.display().to_string(),
    );
    std::fs::write(&file, text).unwrap();
    let config = file.display().to_string();
    let log = scene.path(&format!("{job}.log"));
    let process = Process::start("batchweave-consumer", &["--config", &config], &[], &log);
    (process, socket)
}

fn batchweave(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program("batchweave"));
    command.args(args).args(["--json", "--store", url]);
    command
}

/// Runs the verb to its end and returns its report.
fn report(url: &str, args: &[&str]) -> serde_json::Value {
    let output = batchweave(url, args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Starts passes and kills them until `wanted` were hit and some have reclaimed. Returns the number
/// of passes.
fn kill_reclaimers(url: &str, wanted: u64, killed: &AtomicU64, rng: &mut StdRng) -> u64 {
    let (mut rounds, began) = (0, Instant::now());
    let (mut whole, mut reclaims) = (Duration::ZERO, false);
    while killed.load(Relaxed) < wanted || !reclaims {
        if rounds % 8 == 0 {
            // An undisturbed pass shows the time that one takes on this machine.
            let began = Instant::now();
            let pass = report(url, &["reclaim", "--apply"]);
            reclaims = pass["watermark_after"].as_u64() > Some(0);
            whole = began.elapsed();
        }
        rounds += 1;
        assert!(
            began.elapsed() < 10 * MINUTE,
            "{} kills",
            killed.load(Relaxed)
        );
        let mut pass = batchweave(url, &["reclaim", "--apply"]);
        let mut pass = pass
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(whole.mul_f64(rng.random_range(0.1..1.1)));
        // The process may have ended by itself.
        let _ = pass.kill();
        killed.fetch_add(u64::from(pass.wait().unwrap().code().is_none()), Relaxed);
    }
    rounds
}

fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|e| {
            if e.path().is_dir() {
                files(&e.path())
            } else {
                1
            }
        })
        .sum()
}

#[test]
fn ranks_restart_from_every_kept_checkpoint_while_reclaimers_are_killed() {
    let long = std::env::var_os("BATCHWEAVE_LONG").is_some();
    let (kills, attempts) = if long { (100, 12) } else { (10, 4) };
    let seed = seed();
    let scene = Scene::new();
    let url = scene.url(STREAM);
    let mut producer = scene.producer(STREAM, "p0");
    let daemons = ["fast", "slow"].map(|job| consumer(&scene, job));
    let killed = AtomicU64::new(0);
    let paces = [("fast", 2), ("slow", 9)];
    let mut ranks = Vec::new();
    let mut rounds = 0;
    thread::scope(|scope| {
        let handles: Vec<_> = paces
            .iter()
            .zip(&daemons)
            .map(|((job, ms), (_, socket))| {
                let (pace, socket) = (Duration::from_millis(*ms), socket.clone());
                let killed = &killed;
                scope.spawn(move || {
                    let mut rank = Rank::new(job, socket, pace, seed ^ ms);
                    while rank.restarts < attempts || killed.load(Relaxed) < kills {
                        rank.attempt();
                    }
                    rank
                })
            })
            .collect();
        let mut rng = StdRng::seed_from_u64(seed);
        wait_for_stream(&scene);
        rounds = kill_reclaimers(&url, kills, &killed, &mut rng);
        ranks.extend(handles.into_iter().map(|h| h.join().unwrap()));
    });
    assert_eq!(producer.wait(MINUTE), Some(0));
    for (mut daemon, _) in daemons {
        daemon.signal("TERM");
        assert_eq!(daemon.wait(MINUTE), Some(0));
    }
    let before = files(&scene.stream(STREAM).join("data"));
    let killed_at = report(&url, &["status"])["watermark"].as_u64().unwrap();
    assert!(killed_at > 0, "passes and their ends did something");
    let last = report(&url, &["reclaim", "--apply"]);
    let low = ranks.iter().map(|rank| rank.low).min().unwrap();
    // A rank that went back keeps fewer checkpoints than it had reported before.
    let watermark = last["watermark_after"].as_u64().unwrap();
    assert!(0 < watermark && watermark <= low, "{low}: {last}");
    let quiet = report(&url, &["reclaim", "--apply"]);
    for class in quiet["classes"].as_array().unwrap() {
        assert_eq!(class["dead"]["objects"], 0, "{quiet}");
    }
    assert_eq!(report(&url, &["verify", "--data"])["problem_count"], 0);
    for rank in &ranks {
        let proof = report(&url, &["verify", "--job", rank.job]);
        assert_eq!(proof["verdict"], "proved", "{proof}");
        assert_eq!(
            proof["attempts"].as_array().unwrap().len() as u64,
            rank.restarts
        );
    }
    let restarts: Vec<_> = ranks.iter().map(|r| (r.job, r.restarts, r.again)).collect();
    eprintln!(
        "{} kills in {rounds} passes; (job, attempts, steps read again) {restarts:?}; watermark {killed_at}, then {watermark}; \
         {before} objects before the last pass",
        killed.load(Relaxed)
    );
}

/// Waits until a producer has made the stream.
fn wait_for_stream(scene: &Scene) {
    let file = scene.stream(STREAM).join("stream.json");
    batchweave_tests::eventually("there is a stream", || file.is_file());
}
