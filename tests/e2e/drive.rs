//! Data that follows the loss, with real daemons: a source that is learned quickly gets less, a driver that is killed again
//! and again decides as if it had run through, and each of its changes can be computed again.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use batchweave_client::{Client, ConnectOptions, SourceLoss, Start, StepValues};
use batchweave_tests::{Process, eventually, program, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::scene::MINUTE;

/// Steps of a decision.
const EVERY: u64 = 12;
const CHANGES: u64 = 4;
/// Steps of the rank in which a driver makes a change.
const STEPS: u64 = 100;
const DRIVE: [&str; 11] = [
    "mixture",
    "drive",
    "--job",
    "llm",
    "--rule",
    "odm",
    "--every",
    "12",
    "--after",
    "3",
    "--poll=30ms",
];

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("stream")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("stream").display())
    }

    fn start(&self, daemon: &str, text: &str) -> Process {
        let file = self.path(&format!("{daemon}.toml"));
        std::fs::write(&file, format!("[store]\nurl = {:?}\n{text}", self.url())).unwrap();
        let log = self.path(&format!("{daemon}.log"));
        let config = file.display().to_string();
        Process::start(
            &format!("batchweave-{daemon}"),
            &["--config", &config],
            &[],
            &log,
        )
    }

    fn producer(&self) -> Process {
        let mut text = "[stream]\nslices = 2\nrows_per_slice = 1\nseq_len = 64\n[producer]\nname = \"p0\"\n[tokenizer]\n\
            kind = \"bytes\"\n[commit]\nlinger = \"1ms\"\nmax_batches = 4\n[ahead]\nmax_steps = 16\n"
            .to_owned();
        for name in ["web", "code"] {
            let path = self.path(&format!("{name}.jsonl"));
            let mut lines = String::new();
            for line in 0..400 {
                writeln!(
                    lines,
                    "{{\"text\":\"{name} {line} some words of a document\"}}"
                )
                .unwrap();
            }
            std::fs::write(&path, lines).unwrap();
            let path = path.display().to_string();
            writeln!(
                text,
                "[[sources]]\nname = {name:?}\npaths = [{path:?}]\nweight = 0.5\nepochs = 0"
            )
            .unwrap();
        }
        self.start("producer", &text)
    }

    fn consumer(&self) -> Process {
        let socket = self.path("sock").display().to_string();
        let text = format!(
            "[job]\nname = \"llm\"\nopen = true\nkeep = 100\nprogress_steps = 4\n[arena]\nbytes = \"8MiB\"\n\
             segment_bytes = \"1MiB\"\n[socket]\npath = {socket:?}\n[prefetch]\nbytes = \"256KiB\"\nsteps = 4\n\
             [follow]\nstarved = \"10ms\"\nidle = \"50ms\"\n[admin]\nlisten = \"off\"\n"
        );
        self.start("consumer", &text)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program("batchweave"));
        command.args(args).args(["--store", &self.url(), "--json"]);
        command
    }

    /// Runs a verb; its result and exit code.
    fn run(&self, args: &[&str]) -> (Value, Option<i32>, String) {
        let out = self.command(args).output().unwrap();
        let report = serde_json::from_slice(&out.stdout).unwrap_or_default();
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        (report, out.status.code(), error)
    }

    fn mixture(&self) -> u64 {
        let (status, ..) = self.run(&["status"]);
        status["mixture"]["id"].as_u64().unwrap_or_default()
    }

    /// Reads steps from `from` on until `stop`, and reports losses: those of web fall quickly. Marks every tenth step.
    fn train(&self, from: Option<String>, stop: &dyn Fn(u64) -> bool) -> Vec<(u64, String)> {
        let options = ConnectOptions {
            job: Some("llm".to_owned()),
            start: from.map_or(Start::Step(0), Start::State),
            timeout: MINUTE,
            ..ConnectOptions::new(self.path("sock"))
        };
        let mut reader = Client::connect(options).unwrap();
        let mut points = Vec::new();
        while let Some(batch) = reader.next(MINUTE).unwrap() {
            let step = batch.step();
            let state = batch.state_dict();
            drop(batch);
            reader.report_loss(loss(step)).unwrap();
            if (step + 1).is_multiple_of(5) {
                reader.checkpoint(&state).unwrap();
                points.push((step + 1, state));
            }
            if stop(step) {
                break;
            }
            thread::sleep(Duration::from_millis(4));
        }
        reader.close(MINUTE).unwrap();
        points
    }
}

fn loss(step: u64) -> StepValues {
    let source = |source, mean: f32| SourceLoss {
        source,
        sum: mean * 60.0,
        weight: 60.0,
    };
    let web = 3.0 / (1.0 + step as f32 / 10.0);
    StepValues {
        step,
        sum: f64::from(60.0 * (web + 3.0)),
        weight: 120.0,
        sources: vec![source(0, web), source(1, 3.0)],
        ..StepValues::default()
    }
}

/// How far the rank may train: a log that grows while drivers read it from its beginning would leave slow ones behind.
struct Pace {
    reached: AtomicU64,
    allowed: AtomicU64,
    done: AtomicBool,
}

impl Pace {
    fn new() -> Self {
        Self {
            reached: AtomicU64::new(0),
            allowed: AtomicU64::new(5 * EVERY + STEPS),
            done: AtomicBool::new(false),
        }
    }

    /// Waits until the rank may train on. Returns whether it is over.
    fn wait(&self, step: u64) -> bool {
        self.reached.store(step, Relaxed);
        while step >= self.allowed.load(Relaxed) && !self.done.load(Relaxed) {
            thread::sleep(Duration::from_millis(4));
        }
        self.done.load(Relaxed)
    }

    /// Allows the steps of another change.
    fn go_on(&self) {
        let until = self.reached.load(Relaxed) + STEPS;
        self.allowed.fetch_max(until, Relaxed);
    }
}

/// Ends the rank when the test fails, too.
struct Ends<'a>(&'a Pace);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Relaxed);
    }
}

/// Starts drivers, two at a time, and kills them at any moment, until all changes are made.
fn kill_drivers(scene: &Scene, pace: &Pace) -> u64 {
    let _ends = Ends(pace);
    let mut rng = StdRng::seed_from_u64(seed());
    let (mut kills, mut changes, mut longest) = (0, 0, 1500);
    let began = Instant::now();
    while changes < CHANGES {
        assert!(began.elapsed() < 20 * MINUTE, "{changes} mixtures");
        let log = |n: u32| scene.path(&format!("driver-{n}.log"));
        let store = format!("--store={}", scene.url());
        let args = [&DRIVE[..], &[store.as_str()]].concat();
        let mut pair = [0, 1].map(|n| Process::start("batchweave", &args, &[], &log(n)));
        // Longer and longer, until a driver decides on this machine.
        thread::sleep(Duration::from_millis(rng.random_range(20..longest)));
        for driver in &mut pair {
            driver.signal("KILL");
            kills += u64::from(driver.wait(MINUTE).is_none());
        }
        let made = scene.mixture();
        if made > changes {
            pace.go_on();
        } else {
            longest += longest / 4;
        }
        changes = made;
    }
    kills
}

#[test]
fn a_killed_driver_loses_no_decision_and_each_change_is_explained() {
    let scene = Scene::new();
    let (mut producer, mut consumer) = (scene.producer(), scene.consumer());
    eventually("the job is open", || {
        let (status, ..) = scene.run(&["status"]);
        status["jobs"]
            .as_array()
            .is_some_and(|jobs| !jobs.is_empty())
    });
    let (waiting, code, error) = scene.run(&[&DRIVE[..], &["--once"]].concat());
    assert_eq!(code, Some(0), "{error}");
    assert!(
        waiting["waiting"]
            .as_str()
            .unwrap()
            .contains("no attempt yet"),
        "{waiting}"
    );
    let pace = Pace::new();
    let kills = thread::scope(|scope| {
        let rank = scope.spawn(|| {
            // The first attempt ends in the middle, and the next one goes back behind a change.
            let points = scene.train(None, &|step| step >= 5 * EVERY);
            let (_, state) = points
                .iter()
                .rev()
                .find(|(step, _)| *step <= 3 * EVERY)
                .unwrap();
            scene.train(Some(state.clone()), &|step| pace.wait(step));
        });
        let kills = kill_drivers(&scene, &pace);
        rank.join().unwrap();
        kills
    });
    let mut shares = Vec::new();
    for id in 1..=scene.mixture() {
        let (explained, code, error) = scene.run(&["mixture", "explain", &id.to_string()]);
        assert_eq!(code, Some(0), "{error}");
        let checked = explained["checked"].as_array().unwrap();
        assert_eq!(checked.len(), 4, "{explained}");
        assert_eq!(
            explained["unchecked"].as_array().unwrap().len(),
            0,
            "{explained}"
        );
        shares.push(explained["why"]["sources"][0]["share"].as_f64().unwrap());
    }
    assert!(
        shares.last() < Some(&0.5),
        "web is learned quickly: {shares:?}"
    );
    eprintln!("{kills} kills; shares of web {shares:?}");
    let svg = scene.path("shares.svg").display().to_string();
    let (replay, code, error) = scene.run(&[&DRIVE[..], &["--dry-run", "--svg", &svg]].concat());
    assert_eq!(code, Some(0), "{error}");
    assert!(
        replay["changes"].as_array().unwrap().len() as u64 >= CHANGES,
        "{replay}"
    );
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<polyline"));
    let before = scene.mixture();
    let bad = [
        "mixture",
        "drive",
        "--job",
        "llm",
        "--rule",
        "target",
        "--every",
        "12",
        "--dry-run",
        "--target",
        "web=1",
        "--target",
        "code=1",
        "--target",
        "wiki=1",
    ];
    let (_, code, error) = scene.run(&bad);
    assert!(
        code == Some(1) && error.contains("no source is named wiki"),
        "{error}"
    );
    assert_eq!(scene.mixture(), before, "nothing is written");
    for process in [&mut consumer, &mut producer] {
        process.signal("TERM");
        assert_eq!(process.wait(MINUTE), Some(0));
    }
}
