//! Daemons that make a stream, and their world; for a stream of three sources also its storm: killed at random over a
//! faulty store while a person changes the mixture.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::manifest::Entry;
use batchweave_core::tgb::Digest;
use batchweave_dev_s3::{FaultSpec, LatencyProfile, Options, Server};
use batchweave_log::{Located, Log, LogOptions};
use batchweave_store::Store;
use batchweave_tests::{Process, program};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

use crate::adversary::Beside;
use crate::{URL, open_store, proof, records, start_server};

/// The daemons of a run, and the lanes of each; a daemon without lanes is one producer.
pub(super) type Daemons = &'static [(&'static str, &'static [&'static str])];
pub(super) const SOURCES: [(&str, f64); 3] = [("web", 0.6), ("code", 0.3), ("math", 0.1)];
/// Requests of all daemons between two kills, for each producer: enough for all to start and make some batches.
const KILL_EVERY: u64 = 100;
/// The time between two looks at the number of steps, each of which costs requests.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Steps after which a change is made.
pub(super) const CHANGE_AT: [u64; 2] = [12, 40];
/// The producers stop here until all changes are made, however slow the person is.
pub(super) const HOLD_AT: u64 = 60;
pub(super) const FAULTS: &str = "error=0.004,slow=0.006,conflict=0.004,reset=0.004,lost=0.004";
/// The end of a process that began with a forged snapshot.
const FORGED_START: [&str; 2] = [
    "than the records of the log give",
    "gone or another one by now",
];
/// Much longer than a healthy run takes on a busy machine.
pub(super) const WITHIN: Duration = Duration::from_mins(15);

/// The content of the log: the changes, and the digests by producer and sequence number.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) changes: Vec<Entry>,
    /// By step under lanes; of other streams the steps depend on timing.
    pub(super) digests: BTreeMap<(Step, ProducerName, Seq), Digest>,
    pub(super) epochs: u64,
}

pub(super) struct Scene {
    folder: tempfile::TempDir,
    pub(super) server: Server,
    pub(super) runtime: Runtime,
    daemons: Daemons,
    /// Slices, rows per slice, and tokens per row.
    pub(super) shape: (u32, u32, u32),
    /// The number of steps of a stream with lanes.
    pub(super) steps: u64,
    pub(super) rng: StdRng,
}

/// Returns the packing and the sources of a configuration that reads what [`write_sources`] wrote.
pub(super) fn three_sources(folder: &Path) -> String {
    let mut text = "mode = \"best_fit\"\nlook_ahead = 64\n".to_owned();
    for (source, weight) in SOURCES {
        let paths = format!("{}/{source}/*.jsonl", folder.display());
        write!(
            text,
            "[[sources]]\nname = {source:?}\npaths = [{paths:?}]\nweight = {weight}\n\
             shuffle = {{ seed = 3, window = \"1MiB\" }}\n"
        )
        .unwrap();
    }
    text
}

/// Writes the same documents for the same seed: files of one block and small ones, or as many blocks as lanes.
pub(super) fn write_sources(folder: &Path, daemons: Daemons, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let lanes = daemons.iter().any(|(_, lanes)| !lanes.is_empty());
    let (files, lines) = if lanes {
        ([6, 5, 5], [2800; 3])
    } else {
        ([2, 6, 3], [1200, 200, 100])
    };
    for (n, (name, _)) in SOURCES.iter().enumerate() {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        for file in 0..files[n] {
            let mut text = String::new();
            for line in 0..lines[n] {
                let words: Vec<String> = (0..rng.random_range(1..40))
                    .map(|_| format!("w{}", rng.random_range(0..5000)))
                    .collect();
                let body = words.join(" ");
                writeln!(text, "{{\"text\":\"{name} {file} {line} {body}\"}}").unwrap();
            }
            std::fs::write(folder.join(name).join(format!("{file}.jsonl")), text).unwrap();
        }
    }
}

impl Scene {
    pub(super) fn new(daemons: Daemons, seed: u64, faults: Option<&str>) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(start_server(Options {
            latency: LatencyProfile::S3Express,
            faults: faults.map(|faults| faults.parse().unwrap()),
            seed,
            ..Options::default()
        }));
        Self {
            folder: tempfile::tempdir().unwrap(),
            daemons,
            shape: (2, 2, 512),
            steps: 84,
            server,
            runtime,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `input` ends each configuration, and begins inside of `[packing]`. `bound` stops the producers after some steps,
    /// until they get a configuration without one.
    pub(super) fn configure(&self, input: &str, bound: Option<u64>) {
        let producers = self.producers();
        for (index, (daemon, lanes)) in self.daemons.iter().enumerate() {
            let of = producers.len();
            let (order, identity) = match lanes {
                [] => (
                    "arrival",
                    format!("name = {daemon:?}\nindex = {index}\nof = {of}\n"),
                ),
                [lane] => {
                    let index = producers.iter().position(|name| name == lane).unwrap();
                    (
                        "lanes",
                        format!("name = {lane:?}\nindex = {index}\nof = {of}\n"),
                    )
                }
                lanes => (
                    "lanes",
                    format!("lanes = {lanes:?}\ntakeover_after = \"1s\"\n"),
                ),
            };
            let limit = format!("limit = \"{} batches\"\n", self.steps);
            let limit = if self.has_lanes() { &limit } else { "" };
            let (slices, rows, seq_len) = self.shape;
            let mut text = format!(
                "[store]\nurl = {URL:?}\nendpoint = {:?}\n[stream]\n\
                 slices = {slices}\nrows_per_slice = {rows}\nseq_len = {seq_len}\n\
                 order = {order:?}\nproducers = {producers:?}\n[producer]\n{identity}{limit}\
                 [tokenizer]\nkind = \"bytes\"\nthreads = 2\n[commit]\nlinger = \"1ms\"\nmax_batches = 4\n",
                self.server.endpoint(),
            );
            // Without a bound the other lanes could finish while the stream waits for one.
            text.push_str("[ahead]\n");
            if let Some(steps) = bound {
                writeln!(text, "max_steps = {steps}").unwrap();
            }
            let lead = if bound == Some(1) { 1 } else { 8 };
            writeln!(text, "lane_lead = {lead}").unwrap();
            let object_bytes = ["1B", "16KiB"][index % 2];
            write!(text, "[packing]\nobject_bytes = {object_bytes:?}\n{input}").unwrap();
            std::fs::write(self.path(&format!("{daemon}.toml")), text).unwrap();
        }
    }

    /// Returns the producers in the order of the stream.
    fn producers(&self) -> Vec<&'static str> {
        let all = self.daemons.iter();
        let mut names: Vec<_> = all
            .flat_map(|(daemon, lanes)| {
                if lanes.is_empty() {
                    std::slice::from_ref(daemon)
                } else {
                    lanes
                }
            })
            .copied()
            .collect();
        names.sort_unstable();
        names
    }

    fn has_lanes(&self) -> bool {
        self.daemons.iter().any(|(_, lanes)| !lanes.is_empty())
    }

    pub(super) fn start_all(&self) -> Vec<(&'static str, Process)> {
        let names = self.daemons.iter().map(|(name, _)| *name);
        names.map(|name| (name, self.start(name))).collect()
    }

    fn takes_over(&self) -> bool {
        self.daemons.iter().any(|(_, lanes)| lanes.len() > 1)
    }

    pub(super) fn env() -> [(String, String); 3] {
        let keys = Options::default();
        [
            ("AWS_ACCESS_KEY_ID".to_owned(), keys.access_key),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), keys.secret_key),
            ("AWS_REGION".to_owned(), "us-east-1".to_owned()),
        ]
    }

    fn start(&self, name: &str) -> Process {
        let config = self.path(&format!("{name}.toml")).display().to_string();
        let log = self.path(&format!("{name}.log"));
        Process::start(
            "batchweave-producer",
            &["--config", &config],
            &Self::env(),
            &log,
        )
    }

    pub(super) async fn store(&self) -> Arc<dyn Store> {
        open_store(self.server.endpoint()).await
    }

    pub(super) async fn log(&self) -> Option<Log> {
        let options = LogOptions {
            write_snapshots: false,
            ..LogOptions::new(rand::random())
        };
        Log::open(self.store().await, &options).await.ok()
    }

    /// Returns the number of steps.
    fn steps(&self) -> u64 {
        let log = self.runtime.block_on(self.log());
        log.map_or(0, |log| log.manifest().next_step())
    }

    /// Changes the mixture as a person does; returns whether the command succeeded.
    pub(super) fn change(&mut self) -> bool {
        let weights = SOURCES.map(|(name, _)| format!("{name}={}", self.rng.random_range(1..9)));
        let mut words = vec!["mixture", "set"];
        words.extend(weights.iter().map(String::as_str));
        self.command(&words)
    }

    /// Runs a command that changes the stream from a drawn number of batches on; returns whether it succeeded.
    pub(super) fn command(&mut self, words: &[&str]) -> bool {
        let after = self.rng.random_range(0..12_u64).to_string();
        let out = Command::new(program("batchweave"))
            .args(["--store", URL, "--endpoint", &self.server.endpoint()])
            .args(words)
            .args(["--after", &after])
            .envs(Self::env())
            .output()
            .unwrap();
        out.status.success()
    }

    /// Runs all daemons to their end; kills one of them again and again, and changes the mixture.
    pub(super) fn rage(&mut self, input: &str, beside: &mut dyn Beside) -> u64 {
        self.configure(input, Some(HOLD_AT));
        let kill_every = KILL_EVERY * self.producers().len() as u64;
        let (began, mut kills, mut next_kill) = (Instant::now(), 0, kill_every);
        let mut changes = CHANGE_AT.iter().peekable();
        let mut looked = Instant::now();
        let mut running = self.start_all();
        while !running.is_empty() || !beside.has_ended() {
            beside.act(self, &running, changes.peek().is_none());
            if let Some(at) = changes.peek()
                && looked.elapsed() > LOOK_EVERY
            {
                looked = Instant::now();
                if self.steps() >= **at && beside.change(self) {
                    changes.next();
                    if changes.peek().is_none() {
                        self.configure(input, None);
                        for (_, process) in &mut running {
                            kills += u64::from(process.0.kill().is_ok());
                        }
                    }
                }
            }
            if self.server.stats().total() >= next_kill {
                next_kill = self.server.stats().total() + kill_every;
                let (victim, _) = self.daemons[self.rng.random_range(0..self.daemons.len())];
                if let Some((_, process)) = running.iter_mut().find(|(name, _)| *name == victim) {
                    kills += u64::from(process.0.kill().is_ok());
                }
            }
            running = self.supervise(running);
            let daemon = running.first().map_or(self.daemons[0].0, |(name, _)| name);
            assert!(began.elapsed() < WITHIN, "{}", self.log_text(daemon));
            std::thread::sleep(Duration::from_millis(5));
        }
        kills
    }

    /// Starts what was killed again. Where daemons take lanes from each other, one stays dead half of the time; the last
    /// one never does.
    pub(super) fn supervise(
        &mut self,
        running: Vec<(&'static str, Process)>,
    ) -> Vec<(&'static str, Process)> {
        let mut left = Vec::new();
        let mut dead = Vec::new();
        for (name, mut process) in running {
            match process.0.try_wait().unwrap().map(|status| status.code()) {
                None => left.push((name, process)),
                Some(Some(0)) => {}
                // Killed, or the store failed for too long.
                Some(None | Some(69)) => dead.push(name),
                Some(Some(76))
                    if FORGED_START
                        .iter()
                        .any(|end| self.log_text(name).contains(end)) =>
                {
                    dead.push(name)
                }
                Some(Some(code)) => panic!("{name}: exit {code}\n{}", self.log_text(name)),
            }
        }
        for name in dead {
            if !self.takes_over() || left.is_empty() || self.rng.random_bool(0.5) {
                left.push((name, self.start(name)));
            }
        }
        left
    }

    pub(super) fn log_text(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        let from = text.ceil_char_boundary(text.len().saturating_sub(3000));
        text[from..].to_owned()
    }

    /// Sets all changes of another run, while the producers wait below their bound.
    pub(super) fn repeat(&self, changes: &[Entry]) {
        let running = self.start_all();
        let began = Instant::now();
        let opened = |log: &Log| {
            let producer = |name: &&str| log.manifest().producer(&name.parse().unwrap()).is_some();
            self.producers().iter().all(producer)
        };
        loop {
            let mut log = self.runtime.block_on(self.log());
            if let Some(log) = log.as_mut().filter(|log| opened(log)) {
                for entry in changes {
                    let set = log.commit_entry("test", |_| entry.clone());
                    self.runtime.block_on(set).unwrap();
                }
                break;
            }
            assert!(
                began.elapsed() < WITHIN,
                "{}",
                self.log_text(self.daemons[0].0)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(running);
    }

    pub(super) fn content(&self) -> Content {
        self.server.faults().set(FaultSpec::default());
        self.runtime.block_on(async {
            let mut log = records::open(self.store().await.as_ref()).await;
            let mut content = Content::default();
            assert!(
                log.manifest().end().is_some(),
                "all producers have finished"
            );
            for step in 0..log.manifest().next_step() {
                let Located::At(entry) = log.locate(step).await.unwrap() else {
                    panic!("step {step} is missing")
                };
                let place = if self.has_lanes() { step } else { 0 };
                let key = (place, entry.producer.clone(), entry.seq);
                assert_eq!(content.digests.insert(key, entry.tgb.digest), None);
            }
            let m = log.manifest();
            content.epochs = m.producers().map(|(_, p)| p.epoch).sum();
            let records = proof::records(&self.store().await, m.next_version()).await;
            let entries = records.into_iter().flat_map(|record| record.entries);
            let is_change = |entry: &Entry| matches!(entry, Entry::Mixture(_) | Entry::Stage(_));
            content.changes = entries.filter(is_change).collect();
            content
        })
    }
}
