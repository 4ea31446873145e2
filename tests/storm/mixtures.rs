//! Storms over changes of the mixture: two producers with three sources, killed at random over a faulty store, while a
//! person changes the mixture. Their batches must be those of producers that knew all changes before and lived on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::Mixture;
use batchweave_core::order::MixtureSpec;
use batchweave_core::tgb::Digest;
use batchweave_dev_s3::{FaultSpec, LatencyProfile, Options, Server};
use batchweave_log::{Located, Log, LogOptions};
use batchweave_store::Store;
use batchweave_tests::{Process, program, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

use crate::{URL, alone, open_store, start_server};

const PRODUCERS: [&str; 2] = ["p0", "p1"];
const SOURCES: [(&str, f64); 3] = [("web", 0.6), ("code", 0.3), ("math", 0.1)];
/// Requests of both producers between two kills.
const KILL_EVERY: u64 = 200;
/// The time between two looks at the number of steps, each of which costs requests.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Steps after which a change is made.
const CHANGE_AT: [u64; 2] = [16, 60];
const FAULTS: &str = "error=0.004,slow=0.006,conflict=0.004,reset=0.004,lost=0.004";
/// Much longer than a healthy run takes on a busy machine.
const WITHIN: Duration = Duration::from_mins(15);

/// The content of the log: the changes, and the digests by producer and sequence number.
#[derive(Debug, Default)]
struct Content {
    mixtures: Vec<Mixture>,
    digests: BTreeMap<(ProducerName, Seq), Digest>,
    epochs: u64,
}

struct Scene {
    folder: tempfile::TempDir,
    server: Server,
    runtime: Runtime,
    rng: StdRng,
}

/// Writes the same documents for the same seed: files of several blocks, and small ones.
fn write_sources(folder: &Path, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for (n, (name, _)) in SOURCES.iter().enumerate() {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        for file in 0..[2, 6, 3][n] {
            let mut text = String::new();
            for line in 0..[1200, 200, 100][n] {
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
    fn new(seed: u64, faults: Option<&str>) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(start_server(Options {
            latency: LatencyProfile::S3Express,
            faults: faults.map(|faults| faults.parse().unwrap()),
            seed,
            ..Options::default()
        }));
        Self {
            folder: tempfile::tempdir().unwrap(),
            server,
            runtime,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `bounded` stops the producers after some steps, until they get a configuration without a bound.
    fn configure(&self, sources: &Path, bounded: bool) {
        for (index, name) in PRODUCERS.iter().enumerate() {
            let mut text = format!(
                "[store]\nurl = {URL:?}\nendpoint = {:?}\n[stream]\nslices = 2\nrows_per_slice = 2\nseq_len = 512\n\
                 producers = {PRODUCERS:?}\n[producer]\nname = {name:?}\nindex = {index}\nof = 2\n\
                 [tokenizer]\nkind = \"bytes\"\nthreads = 2\n[packing]\nobject_bytes = {:?}\nmode = \"best_fit\"\n\
                 look_ahead = 64\n[commit]\nlinger = \"1ms\"\nmax_batches = 4\n",
                self.server.endpoint(),
                ["1B", "16KiB"][index],
            );
            if bounded {
                text.push_str("[ahead]\nmax_steps = 1\n");
            }
            for (source, weight) in SOURCES {
                let paths = format!("{}/{source}/*.jsonl", sources.display());
                write!(
                    text,
                    "[[sources]]\nname = {source:?}\npaths = [{paths:?}]\nweight = {weight}\n\
                     shuffle = {{ seed = 3, window = \"1MiB\" }}\n"
                )
                .unwrap();
            }
            std::fs::write(self.path(&format!("{name}.toml")), text).unwrap();
        }
    }

    fn env() -> [(String, String); 3] {
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

    async fn store(&self) -> Arc<dyn Store> {
        open_store(self.server.endpoint()).await
    }

    async fn log(&self) -> Option<Log> {
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

    /// Changes the mixture as a person does, until the command succeeds.
    fn change(&mut self) -> bool {
        let weights = SOURCES.map(|(name, _)| format!("{name}={}", self.rng.random_range(1..9)));
        let after = self.rng.random_range(0..12_u64).to_string();
        let out = Command::new(program("batchweave"))
            .args(["--store", URL, "--endpoint", &self.server.endpoint()])
            .args(["mixture", "set", "--after", &after])
            .args(&weights)
            .envs(Self::env())
            .output()
            .unwrap();
        out.status.success()
    }

    /// Runs both producers to their end; kills one of them again and again, and changes the mixture.
    fn rage(&mut self) -> u64 {
        let (began, mut kills, mut next_kill) = (Instant::now(), 0, KILL_EVERY);
        let mut changes = CHANGE_AT.iter().peekable();
        let mut looked = Instant::now();
        let mut running: Vec<(&str, Process)> = PRODUCERS
            .iter()
            .map(|name| (*name, self.start(name)))
            .collect();
        while !running.is_empty() {
            if let Some(at) = changes.peek()
                && looked.elapsed() > LOOK_EVERY
            {
                looked = Instant::now();
                if self.steps() >= **at && self.change() {
                    changes.next();
                }
            }
            if self.server.stats().total() >= next_kill {
                next_kill = self.server.stats().total() + KILL_EVERY;
                let victim = PRODUCERS[self.rng.random_range(0..2)];
                if let Some((_, process)) = running.iter_mut().find(|(name, _)| *name == victim) {
                    kills += u64::from(process.0.kill().is_ok());
                }
            }
            running = self.supervise(running);
            assert!(began.elapsed() < WITHIN, "{}", self.log_text(running[0].0));
            std::thread::sleep(Duration::from_millis(5));
        }
        kills
    }

    fn supervise<'n>(&self, running: Vec<(&'n str, Process)>) -> Vec<(&'n str, Process)> {
        let mut left = Vec::new();
        for (name, mut process) in running {
            match process.0.try_wait().unwrap().map(|status| status.code()) {
                None => left.push((name, process)),
                Some(Some(0)) => {}
                // Killed, or the store failed for too long.
                Some(None | Some(69)) => left.push((name, self.start(name))),
                Some(Some(code)) => panic!("{name}: exit {code}\n{}", self.log_text(name)),
            }
        }
        left
    }

    fn log_text(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        text.chars()
            .rev()
            .take(3000)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect()
    }

    /// Sets all changes of another run, while the producers wait below their bound.
    fn repeat(&self, mixtures: &[Mixture]) {
        let running: Vec<Process> = PRODUCERS.iter().map(|name| self.start(name)).collect();
        let began = Instant::now();
        let opened = |log: &Log| {
            let producer = |name: &&str| log.manifest().producer(&name.parse().unwrap()).is_some();
            PRODUCERS.iter().all(producer)
        };
        loop {
            let mut log = self.runtime.block_on(self.log());
            if let Some(log) = log.as_mut().filter(|log| opened(log)) {
                for mixture in mixtures {
                    let entry = Entry::Mixture(mixture.clone());
                    let set = log.commit_entry("test", |_| entry.clone());
                    self.runtime.block_on(set).unwrap();
                }
                break;
            }
            assert!(began.elapsed() < WITHIN, "{}", self.log_text("p0"));
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(running);
    }

    fn content(&self) -> Content {
        self.server.faults().set(FaultSpec::default());
        self.runtime.block_on(async {
            let mut log = self.log().await.unwrap();
            let mut content = Content::default();
            assert!(
                log.manifest().end().is_some(),
                "all producers have finished"
            );
            for step in 0..log.manifest().next_step() {
                let Located::At(entry) = log.locate(step).await.unwrap() else {
                    panic!("step {step} is missing")
                };
                let key = (entry.producer.clone(), entry.seq);
                assert_eq!(content.digests.insert(key, entry.tgb.digest), None);
            }
            let m = log.manifest();
            content.epochs = m.producers().map(|(_, p)| p.epoch).sum();
            let spec = MixtureSpec::read(&m.mixture().spec).unwrap();
            let mut so_far = MixtureSpec::default();
            for mixture in spec.mixtures {
                so_far = so_far.with(mixture.clone(), 0);
                content.mixtures.push(Mixture {
                    request: log.new_request(),
                    id: mixture.id,
                    from: mixture.from,
                    spec: so_far.to_json(),
                });
            }
            content
        })
    }
}

/// Runs a storm and the calm run with its changes. Returns kills, epochs and batches.
fn storm(seed: u64) -> (u64, u64, usize) {
    let mut wild = Scene::new(seed, Some(FAULTS));
    let sources = wild.path("sources");
    write_sources(&sources, seed);
    wild.configure(&sources, false);
    let kills = wild.rage();
    let found = wild.content();
    assert_eq!(found.mixtures.len(), CHANGE_AT.len());
    let calm = Scene::new(seed, None);
    // A change may begin with a batch that producers without a bound would have passed.
    calm.configure(&sources, true);
    calm.repeat(&found.mixtures);
    calm.configure(&sources, false);
    let mut running: Vec<Process> = PRODUCERS.iter().map(|name| calm.start(name)).collect();
    for process in &mut running {
        assert_eq!(process.wait(WITHIN), Some(0), "{}", calm.log_text("p0"));
    }
    let expected = calm.content();
    let differs = found
        .digests
        .iter()
        .zip(&expected.digests)
        .find(|(a, b)| a != b);
    assert_eq!(differs, None, "seed {seed}, changes {:?}", found.mixtures);
    assert_eq!(found.digests.len(), expected.digests.len());
    calm.runtime.block_on(calm.server.shutdown());
    wild.runtime.block_on(wild.server.shutdown());
    (kills, found.epochs, found.digests.len())
}

fn storms(count: u64) {
    let _alone = alone();
    let first = seed();
    let (began, mut kills, mut epochs, mut batches) = (Instant::now(), 0, 0, 0);
    for seed in first..first + count {
        let (killed, opened, made) = storm(seed);
        (kills, epochs, batches) = (kills + killed, epochs + opened, batches + made);
    }
    assert!(kills > 0, "no process was killed");
    println!(
        "{}",
        serde_json::json!({
            "storms": count, "seed": first, "seconds": began.elapsed().as_secs_f64(),
            "kills": kills, "epochs": epochs, "batches": batches,
        })
    );
}

#[test]
fn ten_storms_over_changes_of_the_mixture() {
    storms(10);
}

#[test]
#[ignore = "takes long; make test-long runs it"]
fn hundred_storms_over_changes_of_the_mixture() {
    storms(100);
}
