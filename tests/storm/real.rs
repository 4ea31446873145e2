//! A load in real time: tasks with the real log code and the real S3 client against `dev-s3`, measured
//! at the store like the simulator's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use batchweave_core::commit_policy::{Dac, DacOptions};
use batchweave_core::cursor::Cursor;
use batchweave_core::fixtures;
use batchweave_core::ids::{Hash, ProducerName};
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::stream::{StreamConfig, StreamOrder};
use batchweave_core::tgb::Digest;
use batchweave_dev_s3::{LatencyProfile, Options, Server};
use batchweave_log::{CommitItem, CommitOptions, Committer, Log, LogOptions, OpenOutcome};
use batchweave_store::Store;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Barrier;
use tokio::time::sleep_until;

use crate::proof::records;
use crate::{open_store, start_server};

/// The settling time before the measured time, as in the simulator.
const SETTLE: Duration = Duration::from_secs(10);
/// The number of producers that write snapshots, as in the simulator.
const SNAPSHOT_WRITERS: u32 = 8;

/// The plan of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) producers: u32,
    /// Entries per second of each producer.
    pub(crate) rate: f64,
    pub(crate) counted: Duration,
    pub(crate) seed: u64,
}

/// The measured figures of a load.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) attempts_per_commit: f64,
    pub(crate) records_per_second: f64,
    pub(crate) requests_per_entry: f64,
    pub(crate) entries: usize,
}

/// The time at which each TGB was ready, by producer and sequence number.
type Ready = Arc<Mutex<BTreeMap<(ProducerName, u64), Instant>>>;

/// Runs the load and measures it.
pub(crate) async fn run(load: Load) -> Measured {
    let server = start_server(Options {
        latency: LatencyProfile::S3Standard,
        seed: load.seed,
        ..Options::default()
    })
    .await;
    let store = open_store(server.endpoint()).await;
    batchweave_log::create(&store, &stream(load.seed))
        .await
        .unwrap();
    let ready = Ready::default();
    let all_open = Arc::new(Barrier::new(load.producers as usize + 1));
    let mut tasks = Vec::new();
    for number in 0..load.producers {
        let task = produce(Task {
            load,
            number,
            store: Arc::clone(&store),
            ready: Arc::clone(&ready),
            all_open: Arc::clone(&all_open),
        });
        tasks.push(tokio::spawn(task));
    }
    all_open.wait().await;
    let begin = Instant::now() + SETTLE;
    sleep_until(begin.into()).await;
    let before = server.stats().total();
    let end = begin + load.counted;
    sleep_until(end.into()).await;
    let requests = server.stats().total() - before;
    for task in tasks {
        task.await.unwrap();
    }
    let measured = measure(&store, &server, &ready, [begin, end], requests).await;
    server.shutdown().await;
    measured
}

fn stream(seed: u64) -> StreamConfig {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&seed.to_le_bytes());
    fixtures::stream(id, StreamOrder::Arrival, Vec::new())
}

struct Task {
    load: Load,
    number: u32,
    store: Arc<dyn Store>,
    ready: Ready,
    all_open: Arc<Barrier>,
}

/// Runs one producer, which makes TGBs at its rate.
async fn produce(task: Task) {
    let mut rng = StdRng::seed_from_u64(task.load.seed ^ u64::from(task.number) << 32);
    let name: ProducerName = format!("p{}", task.number).parse().unwrap();
    let mut dac = || {
        Dac::new(DacOptions {
            target: Duration::ZERO,
            seed: rng.random(),
        })
    };
    let (mut opening, policy) = (dac(), dac());
    let options = LogOptions {
        write_snapshots: task.number < SNAPSHOT_WRITERS,
        ..LogOptions::new(rng.random())
    };
    let log = Log::open(task.store, &options).await.unwrap();
    let opened = Committer::open_with(log, name.clone(), "load", &mut opening).await;
    let OpenOutcome::Opened(producer) = opened.unwrap() else {
        panic!("{name} is not ours")
    };
    task.all_open.wait().await;
    let (epoch, nonce, mut seq) = (producer.epoch(), producer.nonce(), producer.next_seq());
    let queue = producer.spawn(
        policy,
        CommitOptions {
            queue: 4096,
            ..CommitOptions::default()
        },
    );
    let gap = Duration::from_secs_f64(1.0 / task.load.rate);
    let begin = Instant::now();
    let mut next = begin + gap.mul_f64(rng.random());
    while next < begin + SETTLE + task.load.counted {
        sleep_until(next.into()).await;
        let key = keys::data(&name, epoch, nonce, (seq, seq), 0, 0);
        let item = item(&name, key, seq);
        let now = Instant::now();
        task.ready.lock().unwrap().insert((name.clone(), seq), now);
        assert!(queue.submit(item).await, "{name} has ended");
        seq += 1;
        // Between half and one and a half times the mean.
        next = (next + gap.mul_f64(0.5 + rng.random::<f64>())).max(now);
    }
    queue.close(false).await.unwrap();
}

fn item(name: &ProducerName, key: String, seq: u64) -> CommitItem {
    let digest = Digest(Hash::sha256(format!("{name}/{seq}").as_bytes()).0);
    let tgb = fixtures::tgb(&key, 0, 512, digest);
    CommitItem {
        tgbs: vec![tgb],
        cursor: Cursor(serde_json::json!({ "row": seq + 1 })),
        mixture: None,
        stage: 0,
    }
}

async fn measure(
    store: &Arc<dyn Store>,
    server: &Server,
    ready: &Ready,
    [begin, end]: [Instant; 2],
    requests: u64,
) -> Measured {
    let puts = server.puts();
    let counted = |at: Instant| (begin..end).contains(&at);
    let won: Vec<_> = puts.iter().filter(|d| d.status == 200).collect();
    let records = records(store, won.len() as u64).await;
    let mut visible: BTreeMap<(ProducerName, u64), Instant> = BTreeMap::new();
    // Versions are created in order.
    for (record, put) in records.iter().zip(&won) {
        assert!(put.key.ends_with(&keys::log(record.version)), "{}", put.key);
        for entry in &record.entries {
            let Entry::Batch(e) = entry else { continue };
            for seq in e.first_seq..=e.last_seq {
                visible.insert((e.producer.clone(), seq), put.at);
            }
        }
    }
    let ready = ready.lock().unwrap();
    assert_eq!(ready.len(), visible.len(), "everything became visible");
    let mut latencies: Vec<f64> = ready
        .iter()
        .filter(|(_, at)| counted(**at))
        .map(|(which, at)| (visible[which] - *at).as_secs_f64() * 1000.0)
        .collect();
    latencies.sort_by(f64::total_cmp);
    let rank = |part: f64| latencies[(latencies.len() as f64 * part).ceil() as usize - 1];
    let puts = puts.iter().filter(|d| counted(d.at)).count() as f64;
    let records = won.iter().filter(|d| counted(d.at)).count() as f64;
    Measured {
        p50_ms: rank(0.5),
        p99_ms: rank(0.99),
        attempts_per_commit: puts / records,
        records_per_second: records / (end - begin).as_secs_f64(),
        requests_per_entry: requests as f64 / latencies.len() as f64,
        entries: latencies.len(),
    }
}
