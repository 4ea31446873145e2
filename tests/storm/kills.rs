//! The kill storm: many real producer processes over a faulty store. After each 250 requests one of
//! them is killed at random and restarted immediately, until each has finished.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use batchweave_core::ids::ProducerName;
use batchweave_dev_s3::{FaultSpec, LatencyProfile, Options, Server};
use batchweave_tests::{Process, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

use crate::corpus::{Corpus, SEQ_LEN, SLICES};
use crate::proof::prove;
use crate::{URL, alone, open_store, start_server};

/// Requests of all producers between two kills: about 200 ms on an idle machine. Requests are
/// counted because on a busy machine a process killed by the clock may never reach its first
/// commit.
const KILL_EVERY: u64 = 250;
/// The exit code of a producer that gave up on the store; a supervisor restarts it.
const STORE_UNAVAILABLE: i32 = 69;
/// The fault rates of the requests to which they apply.
const FAULTS: &str = "error=0.004,slow=0.006,conflict=0.004,reset=0.004,lost=0.004,stall=0.0005";

#[derive(Debug, Clone, Copy)]
struct Form {
    producers: u64,
    tgbs: u64,
    /// Much longer than a healthy run takes on a busy machine.
    within: Duration,
}

fn is_long() -> bool {
    std::env::var("BATCHWEAVE_LONG").is_ok_and(|v| v == "1")
}

/// 16 x 50 TGBs; with `BATCHWEAVE_LONG=1` 16 x 2,000.
#[test]
fn sixteen_producers_under_kill_nine() {
    storm(Form {
        producers: 16,
        tgbs: if is_long() { 2000 } else { 50 },
        within: Duration::from_mins(30),
    });
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn sixty_four_producers_under_kill_nine() {
    storm(Form {
        producers: 64,
        tgbs: 500,
        within: Duration::from_mins(30),
    });
}

struct Storm {
    form: Form,
    folder: tempfile::TempDir,
    endpoint: String,
    rng: StdRng,
    kills: u64,
    starts: u64,
    gave_up: u64,
}

fn name(producer: u64) -> String {
    format!("p{producer}")
}

impl Storm {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Objects of one TGB, of a few and of many.
    fn configure(&self, producer: u64) {
        let all: Vec<String> = (0..self.form.producers).map(name).collect();
        let object_bytes = ["1B", "4KiB", "32KiB"][(producer % 3) as usize];
        let text = format!(
            "[store]\nurl = {URL:?}\nendpoint = {:?}\n[stream]\nslices = {SLICES}\n\
             rows_per_slice = 1\nseq_len = {SEQ_LEN}\nproducers = {all:?}\n[producer]\n\
             name = {:?}\n[source]\npaths = [{:?}]\n[tokenizer]\nkind = \"bytes\"\nthreads = 1\n\
             [packing]\nobject_bytes = {object_bytes:?}\n[commit]\nlinger = \"1ms\"\n\
             max_batches = 8\n",
            self.endpoint,
            name(producer),
            self.path(&format!("{producer}.jsonl"))
                .display()
                .to_string(),
        );
        std::fs::write(self.path(&format!("{producer}.toml")), text).unwrap();
    }

    fn start(&mut self, producer: u64) -> Process {
        self.starts += 1;
        let keys = Options::default();
        let env = [
            ("AWS_ACCESS_KEY_ID".to_owned(), keys.access_key),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), keys.secret_key),
            ("AWS_REGION".to_owned(), "us-east-1".to_owned()),
        ];
        let config = self.path(&format!("{producer}.toml")).display().to_string();
        let log = self.path(&format!("{producer}.log"));
        Process::start("batchweave-producer", &["--config", &config], &env, &log)
    }

    fn log_text(&self, producer: u64) -> String {
        let text =
            std::fs::read_to_string(self.path(&format!("{producer}.log"))).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Kills and restarts the producers until each has exited with success.
    fn rage(&mut self, server: &Server) {
        let began = Instant::now();
        let mut running: Vec<(u64, Process)> = Vec::new();
        for producer in 0..self.form.producers {
            let process = self.start(producer);
            running.push((producer, process));
        }
        let mut next_kill = KILL_EVERY;
        while !running.is_empty() {
            running = self.supervise(running);
            if server.stats().total() >= next_kill {
                next_kill = server.stats().total() + KILL_EVERY;
                // Draws among all producers: if the last one got all kills, it could never finish.
                let victim = self.rng.random_range(0..self.form.producers);
                if let Some((_, process)) = running.iter_mut().find(|(n, _)| *n == victim) {
                    self.kills += u64::from(kill(&mut process.0));
                }
            }
            if began.elapsed() > self.form.within {
                let left: Vec<_> = running.iter().map(|(n, _)| *n).collect();
                panic!(
                    "not finished: {left:?}; the first says\n{}",
                    self.log_text(left[0])
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn supervise(&mut self, running: Vec<(u64, Process)>) -> Vec<(u64, Process)> {
        let mut left = Vec::new();
        for (producer, mut process) in running {
            match process.0.try_wait().unwrap().map(|status| status.code()) {
                None => left.push((producer, process)),
                Some(Some(0)) => {}
                // The process was killed.
                Some(None) => left.push((producer, self.start(producer))),
                Some(Some(STORE_UNAVAILABLE)) => {
                    self.gave_up += 1;
                    left.push((producer, self.start(producer)));
                }
                Some(Some(code)) => panic!("p{producer}: exit {code}\n{}", self.log_text(producer)),
            }
        }
        left
    }
}

/// Sends SIGKILL. Returns false if the process had exited already.
fn kill(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None)) && child.kill().is_ok()
}

fn storm(form: Form) {
    let _alone = alone();
    let seed = seed();
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(start_server(Options {
        latency: LatencyProfile::S3Express,
        faults: Some(FAULTS.parse().unwrap()),
        seed,
        unordered_list: true,
        ..Options::default()
    }));
    let mut storm = Storm {
        form,
        folder: tempfile::tempdir().unwrap(),
        endpoint: server.endpoint(),
        rng: StdRng::seed_from_u64(seed),
        kills: 0,
        starts: 0,
        gave_up: 0,
    };
    let corpora: Vec<(ProducerName, Corpus)> = (0..form.producers)
        .map(|n| {
            let corpus = Corpus::new(seed, n, form.tgbs);
            corpus.write(&storm.path(&format!("{n}.jsonl")));
            storm.configure(n);
            (name(n).parse().unwrap(), corpus)
        })
        .collect();
    let began = Instant::now();
    storm.rage(&server);
    let seconds = began.elapsed().as_secs_f64();
    let stats = server.stats();
    server.faults().set(FaultSpec::default());
    let summary = runtime.block_on(async {
        let store = open_store(server.endpoint()).await;
        prove(&store, &corpora, form.tgbs).await
    });
    assert!(storm.kills > 0, "no process was killed");
    let puts = record_puts(&server);
    println!(
        "{}",
        serde_json::json!({
            "producers": form.producers, "tgbs_each": form.tgbs, "seed": seed,
            "seconds": seconds, "kills": storm.kills, "starts": storm.starts,
            "gave_up": storm.gave_up, "epochs": summary.epochs, "records": summary.records,
            "entries_per_record": summary.entries as f64 / summary.records as f64,
            "attempts_per_record": puts as f64 / summary.records as f64,
            "intents_left": summary.intents_left, "requests": stats.total(),
            "faults": stats.faults,
        })
    );
    runtime.block_on(server.shutdown());
}

fn record_puts(server: &Server) -> usize {
    server.puts().len()
}
