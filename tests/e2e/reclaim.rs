//! A reclaimer that is killed repeatedly while two jobs of different speed read: each restart point
//! that a job keeps leads to the same bytes, and a last undisturbed pass leaves nothing behind. Ten
//! kills; a hundred with `BATCHWEAVE_LONG=1`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, Step, StreamId};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_core::tgb::{Digest, ObjectPart, TgbRecord};
use batchweave_log::{Located, Log, LogOptions, create};
use batchweave_store::Store;
use batchweave_store::file::FileStore;
use batchweave_testkit::{TestJob, TestProducer};
use batchweave_tests::{program, seed};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const KEEP: usize = 2;
const INTERVAL: Step = 20;
const SHARED: u64 = 4;

/// A training run, as far as the store shows it.
struct Job {
    admin: TestJob,
    position: Step,
    marks: Vec<Step>,
}

struct World {
    store: Arc<dyn Store>,
    log: Log,
    producer: TestProducer,
    jobs: Vec<Job>,
    /// The hash of each step's part when it was uploaded.
    bytes: BTreeMap<Step, Hash>,
}

fn stream() -> StreamConfig {
    StreamConfig {
        format: 1,
        stream_id: StreamId::from_random([9; 16]),
        slices: 1,
        order: StreamOrder::Arrival,
        producers: Vec::new(),
        tokenizer: TokenizerId {
            name: "none".into(),
            fingerprint: Hash::sha256(b"none"),
        },
        seq_len: 8,
        rows_per_slice: 1,
        created: "2026-11-21T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}

impl World {
    async fn new(root: &Path) -> Self {
        let store = FileStore::open(root, true).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let _ = create(&store, &stream()).await.unwrap();
        let options = [1, 2].map(|seed| LogOptions::new([seed; 32]));
        let writer = Log::open(Arc::clone(&store), &options[0]).await.unwrap();
        let producer = TestProducer::open(writer, "p0", "t:1").await;
        let mut log = Log::open(Arc::clone(&store), &options[1]).await.unwrap();
        let mut jobs = Vec::new();
        for name in ["fast", "slow"] {
            let admin = TestJob::open(&mut log, name, |job| job.keep = KEEP as u32).await;
            jobs.push(Job {
                admin,
                position: 0,
                marks: Vec::new(),
            });
        }
        Self {
            store,
            log,
            producer,
            jobs,
            bytes: BTreeMap::new(),
        }
    }

    /// Commits one object of several steps.
    async fn commit(&mut self, rng: &mut StdRng) {
        let (first, length) = (self.producer.next_seq(), 512);
        let seqs = (first, first + SHARED - 1);
        let key = self.producer.data_key(seqs, 0);
        let body: Vec<u8> = (0..length * SHARED).map(|_| rng.random()).collect();
        let part = |n: u64| ObjectPart {
            key: key.clone(),
            offset: n * length,
            length,
            first_slice: 0,
            slices: 1,
            frame_bytes: Some(length),
            index: None,
        };
        let tgbs: Vec<_> = (0..SHARED)
            .map(|n| TgbRecord {
                rows: 1,
                tokens: 8,
                digest: Digest([n as u8; 32]),
                parts: vec![part(n)],
                provenance: None,
                cost: None,
            })
            .collect();
        for n in 0..SHARED {
            let at = (n * length) as usize;
            let slice = &body[at..at + length as usize];
            self.bytes.insert(first + n, Hash::sha256(slice));
        }
        let _ = self.store.upload(&key, Bytes::from(body)).await.unwrap();
        let cursor = Cursor(serde_json::json!({ "row": seqs.1 }));
        self.producer.try_commit(tgbs, cursor).await.unwrap();
    }

    /// Lets a job train up to `to`, with checkpoints on the way.
    async fn train(&mut self, at: usize, to: Step) {
        let job = &mut self.jobs[at];
        let from = job.position;
        job.position = to.max(from);
        let marks: Vec<_> = (from + 1..=job.position)
            .filter(|step| step.is_multiple_of(INTERVAL))
            .collect();
        job.marks.extend(&marks);
        job.admin.progress(job.position).await;
        for step in marks {
            job.admin.mark(step).await;
        }
    }

    /// Checks that ranks that restart from each kept mark get the committed bytes.
    async fn restarts_work(&mut self) {
        self.log.catch_up().await.unwrap();
        let head = self.log.manifest().next_step();
        let kept = |job: &Job| {
            let mut points = vec![0];
            points.extend(&job.marks);
            points[points.len().saturating_sub(KEEP)]
        };
        let oldest = self.jobs.iter().map(kept).min().unwrap();
        for step in oldest..head {
            let located = self.log.locate(step).await.unwrap();
            let Located::At(entry) = located else {
                panic!("step {step} of {oldest}..{head}: {located:?}");
            };
            let part = &entry.tgb.parts[0];
            let body = self.store.get(&part.key, u64::MAX).await.unwrap();
            let at = part.offset as usize..(part.offset + part.length) as usize;
            assert_eq!(Hash::sha256(&body[at]), self.bytes[&step], "step {step}");
        }
        assert_eq!(self.log.manifest().void_entries(), 0);
    }
}

fn reclaim(root: &Path) -> Command {
    let mut command = Command::new(program("batchweave"));
    let url = format!("file://{}", root.display());
    command.args(["reclaim", "--apply", "--json", "--store", &url]);
    command
}

/// Runs a pass to its end and returns its report.
fn pass(root: &Path) -> serde_json::Value {
    let output = reclaim(root).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Starts a process and kills it after a time. Returns its run time if it ended before that.
fn killed_after(mut command: Command, time: Duration) -> JoinHandle<Option<Duration>> {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    std::thread::spawn(move || {
        while began.elapsed() < time {
            if child.try_wait().unwrap().is_some() {
                return Some(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let killed = child.wait().unwrap().code().is_none();
        (!killed).then(|| began.elapsed())
    })
}

#[test]
fn a_reclaimer_killed_at_random_harms_no_job_and_leaves_nothing_behind() {
    let kills_wanted = if std::env::var_os("BATCHWEAVE_LONG").is_some() {
        100
    } else {
        10
    };
    let mut rng = StdRng::seed_from_u64(seed());
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut world = runtime.block_on(World::new(dir.path()));
    let (mut kills, mut rounds) = (0, 0);
    // The run time of a pass on this machine: the kills must fall within it.
    let mut whole = Duration::from_millis(40);
    while kills < kills_wanted {
        rounds += 1;
        assert!(rounds < 100 * kills_wanted, "only {kills} kills hit");
        let kill_after = whole.mul_f64(rng.random());
        let pass = killed_after(reclaim(dir.path()), kill_after);
        runtime.block_on(async {
            for _ in 0..4 {
                world.commit(&mut rng).await;
            }
            let head = world.bytes.len() as Step;
            world.train(0, head - rng.random_range(0..8)).await;
            world.train(1, head.saturating_sub(60) / 2).await;
        });
        match pass.join().unwrap() {
            None => kills += 1,
            Some(elapsed) => whole = elapsed,
        }
        runtime.block_on(world.restarts_work());
    }
    let last = pass(dir.path());
    assert!(last["watermark_after"].as_u64().unwrap() > 0, "{last}");
    runtime.block_on(world.restarts_work());
    let quiet = pass(dir.path());
    for class in quiet["classes"].as_array().unwrap() {
        assert_eq!(class["dead"]["objects"], 0, "{quiet}");
    }
    let data = &quiet["classes"][0];
    let live = quiet["head"].as_u64().unwrap() - quiet["watermark"].as_u64().unwrap();
    let objects = data["needed"]["objects"].as_u64().unwrap();
    assert!(
        objects <= live / SHARED + 2,
        "{objects} objects, {live} steps"
    );
    eprintln!("{kills} kills in {rounds} rounds, {live} steps alive");
}
