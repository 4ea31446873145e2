//! Whole jobs: two producers, one consumer daemon, four ranks. Each of them is killed three times, the
//! store is down for ten seconds, and each second answer is late. Then `verify --job` must prove every
//! step, and every mark must have been stored in time.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_dev_s3::{Options, Server};
use batchweave_tests::{Process, program, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::corpus::{Corpus, SEQ_LEN, SLICES};
use crate::{URL, alone, late};

/// Batches of each of the two producers: 600 steps in total.
const TGBS: u64 = 300;
const STEPS: Step = 2 * TGBS;
const RANKS: u32 = 4;
const MARK_EVERY: Step = 40;
const KILLS: usize = 3;
const DOWN: Duration = Duration::from_secs(10);
const MARK_LATE_MAX: Duration = Duration::from_secs(30);
const WITHIN: Duration = Duration::from_mins(10);
/// The bound of the producers ahead of the slowest rank, in steps.
const AHEAD: Step = 120;
const PROGRAMS: [&str; 7] = ["p0", "p1", "consumer", "r0", "r1", "r2", "r3"];

/// Runs `BATCHWEAVE_RUNS` times, once by default, with consecutive seeds.
#[test]
#[ignore = "takes minutes: make whole-jobs"]
fn whole_jobs_are_proved_over_every_step() {
    let _alone = alone();
    let runs = std::env::var("BATCHWEAVE_RUNS").map_or(1, |n| n.parse().unwrap());
    let first = seed();
    let outcomes: Vec<Outcome> = (first..first + runs).map(run).collect();
    let proved = outcomes.iter().filter(|o| o.proved).count();
    let latest = outcomes.iter().map(|o| o.latest_mark).max().unwrap();
    println!("{proved} of {runs} proved; latest mark {latest:?}");
    assert_eq!(proved as u64, runs);
    assert!(latest <= MARK_LATE_MAX, "a mark was {latest:?} late");
}

/// A mark, and the time from its rank's reaching it until it was stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    by: Duration,
    rank: u32,
    step: Step,
    seen: Option<Instant>,
}

struct Outcome {
    proved: bool,
    latest_mark: Duration,
}

struct Job {
    folder: tempfile::TempDir,
    endpoint: String,
    running: BTreeMap<&'static str, Process>,
    /// Ranks and producers that have exited.
    done: Vec<&'static str>,
    /// Steps at which each program is killed, the next one last.
    kills: BTreeMap<&'static str, Vec<Step>>,
    /// The time at which a rank was first seen at a step that it marks.
    marked: BTreeMap<(u32, Step), Instant>,
    killed: Vec<(&'static str, Instant)>,
    starts: u64,
}

impl Job {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn configure(&self, seed: u64) {
        let store = format!("[store]\nurl = {URL:?}\nendpoint = {:?}\n", self.endpoint);
        for (n, name) in ["p0", "p1"].into_iter().enumerate() {
            let input = self.path(&format!("{name}.jsonl"));
            Corpus::new(seed, n as u64, TGBS).write(&input);
            let text = format!(
                "{store}[stream]\nslices = {SLICES}\nrows_per_slice = 1\nseq_len = {SEQ_LEN}\n\
                 producers = [\"p0\", \"p1\"]\n[producer]\nname = {name:?}\n[source]\npaths = [{:?}]\n\
                 [tokenizer]\nkind = \"bytes\"\nthreads = 1\n[packing]\nobject_bytes = {:?}\n[commit]\n\
                 linger = \"1ms\"\nmax_batches = 8\n[ahead]\nmax_steps = {AHEAD}\n[admin]\nlisten = \"off\"\n",
                input.display().to_string(),
                ["1B", "2KiB"][n],
            );
            fs::write(self.path(&format!("{name}.toml")), text).unwrap();
        }
        let text = format!(
            "{store}[job]\nname = \"llm\"\nopen = true\nprogress_steps = 16\n[socket]\npath = {:?}\n\
             [arena]\nbytes = \"16MiB\"\nsegment_bytes = \"4MiB\"\n[prefetch]\nbytes = \"8MiB\"\n\
             [admin]\nlisten = \"off\"\n",
            self.text("s"),
        );
        fs::write(self.path("consumer.toml"), text).unwrap();
    }

    fn env() -> [(String, String); 3] {
        let keys = Options::default();
        [
            ("AWS_ACCESS_KEY_ID".to_owned(), keys.access_key),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), keys.secret_key),
            ("AWS_REGION".to_owned(), "us-east-1".to_owned()),
        ]
    }

    fn start(&mut self, name: &'static str) {
        self.starts += 1;
        let config = self.text(&format!("{name}.toml"));
        let rank = name.strip_prefix('r').unwrap_or_default();
        let (socket, attempt) = (self.text("s"), "5e".repeat(16));
        let files = ["state", "out", "waits"].map(|file| self.text(&format!("{name}.{file}")));
        let (world, steps) = (RANKS.to_string(), STEPS.to_string());
        let every = MARK_EVERY.to_string();
        let (program, args) = match name {
            "p0" | "p1" => ("batchweave-producer", vec!["--config", &config]),
            "consumer" => ("batchweave-consumer", vec!["--config", &config]),
            _ => {
                let mut args = vec!["demo-rank", "--socket", &socket, "--job", "llm"];
                args.extend(["--attempt", &attempt, "--rank", rank, "--world", &world]);
                args.extend(["--steps", &steps, "--step-ms", "60", "--mark-every", &every]);
                args.extend([
                    "--state-file",
                    &files[0],
                    "--out",
                    &files[1],
                    "--waits",
                    &files[2],
                ]);
                ("batchweave-lab", args)
            }
        };
        let log = self.path(&format!("{name}.log"));
        let process = Process::start(program, &args, &Self::env(), &log);
        self.running.insert(name, process);
    }

    /// Returns the step that a rank trains next, as it has saved it.
    fn position(&self, rank: u32) -> Step {
        let read = || -> Option<Step> {
            let saved: Value =
                serde_json::from_slice(&fs::read(self.path(&format!("r{rank}.state"))).ok()?)
                    .ok()?;
            let state: Value = serde_json::from_str(saved["state"].as_str()?).ok()?;
            let state: Value = serde_json::from_str(state["batchweave"].as_str()?).ok()?;
            state["next_step"].as_u64()
        };
        read().unwrap_or_default()
    }

    fn log_text(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Restarts programs that were killed or gave up, and notes those that have finished.
    fn supervise(&mut self) {
        for name in PROGRAMS {
            let Some(process) = self.running.get_mut(name) else {
                continue;
            };
            match process.0.try_wait().unwrap().map(|status| status.code()) {
                None => {}
                Some(Some(0)) => {
                    self.running.remove(name);
                    self.done.push(name);
                }
                // It was killed, or the store was down longer than the program retries.
                Some(None | Some(1 | 69)) => self.start(name),
                Some(Some(code)) => panic!("{name}: exit {code}\n{}", self.log_text(name)),
            }
        }
    }

    /// Kills the programs that are due: a rank by its own position, the others by that of the
    /// slowest rank.
    fn kill(&mut self) {
        let positions: Vec<Step> = (0..RANKS).map(|rank| self.position(rank)).collect();
        let now = Instant::now();
        for (rank, step) in (0..).zip(&positions) {
            let marks = (1..=step / MARK_EVERY).map(|n| (rank, n * MARK_EVERY));
            for mark in marks {
                self.marked.entry(mark).or_insert(now);
            }
        }
        let slowest = positions.iter().copied().min().unwrap_or_default();
        for name in PROGRAMS {
            let rank = name
                .strip_prefix('r')
                .and_then(|rank| rank.parse::<usize>().ok());
            let at = rank.map_or(slowest, |rank| positions[rank]);
            let Some(due) = self.kills.get_mut(name) else {
                continue;
            };
            if due.last().is_some_and(|step| at >= *step) {
                due.pop();
                if let Some(process) = self.running.get_mut(name) {
                    let _ = process.0.kill();
                    self.killed.push((name, now));
                }
            }
        }
    }

    fn ranks_done(&self) -> bool {
        self.done
            .iter()
            .filter(|name| name.starts_with('r'))
            .count()
            == RANKS as usize
    }

    fn verify(&self) -> Value {
        let args = [
            "--store",
            URL,
            "--endpoint",
            &self.endpoint,
            "--json",
            "verify",
            "--job",
            "llm",
        ];
        let run = Command::new(program("batchweave"))
            .args(args)
            .envs(Self::env())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("verify printed {stderr}"))
    }

    /// Returns the latest mark, and the number of marks not stored although their rank lived.
    fn marks(&self, server: &Server) -> (Late, usize) {
        let mut stored: BTreeMap<(u32, Step), Instant> = BTreeMap::new();
        for put in server.puts() {
            // The key as in the request: behind the stream's prefix, and encoded.
            let encoded = put.key.split_once('/').map_or("", |(_, key)| key);
            let key = encoded.replace("%40", "@");
            if let Some(mark) = keys::parse_mark(&key).filter(|_| put.status == 200) {
                let at = (mark.coordinate.unwrap_or_default(), mark.step);
                stored.entry(at).or_insert(put.at);
            }
        }
        let (mut latest, mut lacking) = (Late::default(), 0);
        for (&(rank, step), seen) in &self.marked {
            let name = format!("r{rank}");
            let died = |(program, at): &(&str, Instant)| {
                *program == name && *at >= *seen && at.duration_since(*seen) < MARK_LATE_MAX
            };
            match stored.get(&(rank, step)) {
                Some(at) => {
                    let by = at.saturating_duration_since(*seen);
                    let seen = Some(*seen);
                    latest = latest.max(Late {
                        by,
                        rank,
                        step,
                        seen,
                    });
                }
                None if self.killed.iter().any(died) => {}
                None => lacking += 1,
            }
        }
        (latest, lacking)
    }
}

/// Returns the steps of the kills, the first one last; all are before the program ends.
fn drawn(rng: &mut StdRng, name: &str) -> Vec<Step> {
    // One producer may finish when the other has hardly begun.
    let end = if name.starts_with('p') {
        TGBS - AHEAD - 10
    } else {
        STEPS - 30
    };
    let mut steps: Vec<Step> = (0..KILLS).map(|_| rng.random_range(20..end)).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    steps
}

fn run(seed: u64) -> Outcome {
    let runtime = Runtime::new().unwrap();
    let journal = Some("/marks/".to_owned());
    let server = runtime
        .block_on(Server::start(Options {
            seed,
            journal,
            ..Options::default()
        }))
        .unwrap();
    let address = server
        .endpoint()
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let proxy = runtime.block_on(late::start(address, seed));
    let mut rng = StdRng::seed_from_u64(seed);
    let down_at = rng.random_range(60..STEPS - 120);
    let mut job = Job {
        folder: tempfile::tempdir().unwrap(),
        endpoint: format!("http://{proxy}"),
        running: BTreeMap::new(),
        done: Vec::new(),
        kills: PROGRAMS.map(|name| (name, drawn(&mut rng, name))).into(),
        marked: BTreeMap::new(),
        killed: Vec::new(),
        starts: 0,
    };
    job.configure(seed);
    for name in PROGRAMS {
        job.start(name);
    }
    let began = Instant::now();
    let mut down: Option<Instant> = None;
    while !job.ranks_done() {
        job.supervise();
        job.kill();
        match down {
            None if job.position(0) >= down_at => {
                server.faults().set_down(true);
                down = Some(Instant::now());
            }
            Some(since) if since.elapsed() >= DOWN => server.faults().set_down(false),
            _ => {}
        }
        assert!(
            began.elapsed() < WITHIN,
            "seed {seed}: not finished; consumer:\n{}\nr0:\n{}\np0:\n{}",
            job.log_text("consumer"),
            job.log_text("r0"),
            job.log_text("p0"),
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let seconds = began.elapsed().as_secs_f64();
    if let Some(mut consumer) = job.running.remove("consumer") {
        consumer.signal("TERM");
        consumer.wait(Duration::from_mins(1));
    }
    let report = job.verify();
    let (late, lacking) = job.marks(&server);
    let since = |at: Option<Instant>| at.map(|at| (at - began).as_secs_f64());
    let killed: Vec<_> = job
        .killed
        .iter()
        .map(|(program, at)| (program, since(Some(*at))))
        .collect();
    let proved = report["verdict"] == "proved" && report["steps"] == STEPS && lacking == 0;
    let kills: BTreeMap<_, _> = PROGRAMS
        .map(|name| {
            (
                name,
                job.killed
                    .iter()
                    .filter(|(program, _)| *program == name)
                    .count(),
            )
        })
        .into();
    let summary = serde_json::json!({
        "seed": seed, "seconds": seconds, "proved": proved, "verdict": report["verdict"],
        "to": report["to"], "steps": report["steps"], "contradiction": report["contradiction"],
        "not_proved": report["not_proved"], "retold": report["lineage"][0]["retold"],
        "again": report["lineage"][0]["again"], "kills": kills, "starts": job.starts,
        "down_at": down_at, "latest_mark_s": late.by.as_secs_f64(), "marks_lacking": lacking,
        "latest": (late.rank, late.step, since(late.seen)), "down_s": since(down),
        "killed": killed,
        "requests": server.stats().total(),
    });
    println!("{summary}");
    let bad = !proved || late.by > MARK_LATE_MAX;
    if bad && let Ok(folder) = std::env::var("BATCHWEAVE_KEEP") {
        let _ = Command::new("cp")
            .args(["-r", &job.text(""), &folder])
            .status();
    }
    drop(job);
    runtime.block_on(server.shutdown());
    Outcome {
        proved,
        latest_mark: late.by,
    }
}
