//! Memory: eight ranks read at full speed, and one of them stops reading. The daemon's memory, its
//! arena included, stays within the configured bound.
//!
//! Five seconds and until the ranks have read more than the arena holds; with `BATCHWEAVE_LONG=1` ten minutes, or `BATCHWEAVE_LONG_SECONDS`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use batchweave_client::{Client, ConnectOptions};
use batchweave_tests::Process;

use crate::scene::MINUTE;

const RANKS: u32 = 8;
const EPOCH_STEPS: u64 = 16;
const EPOCHS: u64 = 34;
/// More steps than the arena holds.
const STEPS: u64 = EPOCH_STEPS * EPOCHS;
/// The size of each slice: 4 rows of 16 Ki tokens of 2 bytes.
const SEQ_LEN: u64 = 16 << 10;
const ROWS: u64 = 4;
/// The arena's size. The daemon's own memory, about 43 MiB at full speed whatever the arena is, is
/// below a tenth of it.
const ARENA_BYTES: u64 = 512 << 20;

/// Returns the resident memory of a process with its arena, without the program's text, which is a
/// file's.
fn resident(process: &Process) -> u64 {
    let path = format!("/proc/{}/status", process.0.id());
    let text = std::fs::read_to_string(path).unwrap();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap()
    };
    (kib("RssAnon:") + kib("RssShmem:")) * 1024
}

fn produce(folder: &std::path::Path) {
    let mut text = String::new();
    let documents = EPOCH_STEPS * u64::from(RANKS) * ROWS;
    for document in 0..documents {
        let numbers = (0..SEQ_LEN / 8).map(|word| document * SEQ_LEN / 8 + word);
        let words = numbers
            .map(|number| format!("{number:07}"))
            .collect::<Vec<_>>()
            .join(" ");
        writeln!(text, "{{\"text\": {words:?}}}").unwrap();
    }
    std::fs::write(folder.join("corpus.jsonl"), text).unwrap();
    std::fs::create_dir(folder.join("stream")).unwrap();
    let config = format!(
        "[store]\nurl = \"file://{}/stream\"\n[stream]\nslices = {RANKS}\nrows_per_slice = {ROWS}\n\
         seq_len = {SEQ_LEN}\nproducers = [\"p0\"]\n[producer]\nname = \"p0\"\n\
         [source]\npaths = [\"{}/corpus.jsonl\"]\nepochs = {EPOCHS}\n[tokenizer]\nkind = \"bytes\"\n\
         [admin]\nlisten = \"off\"\n",
        folder.display(),
        folder.display(),
    );
    let path = folder.join("producer.toml");
    std::fs::write(&path, config).unwrap();
    let args = ["--config", &path.display().to_string()];
    let log = folder.join("producer.log");
    let mut producer = Process::start("batchweave-producer", &args, &[], &log);
    let ended = producer.wait(5 * MINUTE);
    assert_eq!(ended, Some(0), "{}", std::fs::read_to_string(log).unwrap());
}

fn consume(folder: &std::path::Path) -> (Process, PathBuf) {
    let socket = folder.join("s.sock");
    let config = format!(
        "[store]\nurl = \"file://{}/stream\"\n[arena]\nbytes = \"{ARENA_BYTES}B\"\n\
         segment_bytes = \"32MiB\"\ngrow_after = \"0s\"\n[socket]\npath = {:?}\n\
         [prefetch]\nbytes = \"512MiB\"\nsteps = 1024\n[admin]\nlisten = \"off\"\n",
        folder.display(),
        socket.display().to_string(),
    );
    let path = folder.join("consumer.toml");
    std::fs::write(&path, config).unwrap();
    let args = ["--config", &path.display().to_string()];
    let log = folder.join("consumer.log");
    let process = Process::start("batchweave-consumer", &args, &[], &log);
    (process, socket)
}

fn options(socket: &PathBuf, rank: u32) -> ConnectOptions {
    ConnectOptions {
        dp_rank: rank,
        dp_size: RANKS,
        ..ConnectOptions::new(socket)
    }
}

/// Reads the stream repeatedly until `stop`.
fn read_on(socket: &PathBuf, rank: u32, stop: &AtomicBool, steps: &AtomicU64) {
    while !stop.load(Relaxed) {
        let mut reader = Client::connect(options(socket, rank)).unwrap();
        while !stop.load(Relaxed) {
            let Some(batch) = reader.next(MINUTE).unwrap() else {
                break;
            };
            // Touches every page, as training does.
            let bytes = batch.slices().iter().map(batchweave_client::Slice::bytes);
            let sum: u64 = bytes.flatten().step_by(4096).map(|b| u64::from(*b)).sum();
            steps.fetch_add(u64::from(sum > 0), Relaxed);
        }
    }
}

/// Takes the steps that its credits allow, and nothing more until `stop`.
fn stand_still(socket: &PathBuf, rank: u32, stop: &AtomicBool) {
    let mut reader = Client::connect(options(socket, rank)).unwrap();
    let held: Vec<_> = (0..4)
        .filter_map(|_| reader.next(MINUTE).unwrap())
        .collect();
    assert_eq!(held.len(), 4);
    while !stop.load(Relaxed) {
        thread::sleep(Duration::from_millis(20));
    }
    let sum = |b: &batchweave_client::Batch| b.slices()[0].bytes().iter().any(|b| *b > 0);
    assert!(held.iter().all(sum), "its arrays are as they were");
    drop(held);
    assert_eq!(
        reader.next(MINUTE).unwrap().unwrap().step(),
        4,
        "it goes on"
    );
}

fn seconds() -> u64 {
    let given = std::env::var("BATCHWEAVE_LONG_SECONDS").ok();
    let long = std::env::var("BATCHWEAVE_LONG").is_ok_and(|v| v == "1");
    match given.and_then(|s| s.parse().ok()) {
        Some(seconds) => seconds,
        None if long => 600,
        None => 5,
    }
}

#[test]
fn memory_stays_within_its_bound_while_a_rank_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    produce(folder.path());
    let (mut daemon, socket) = consume(folder.path());
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (lasts, mut most) = (Duration::from_secs(seconds()), 0);
    thread::scope(|scope| {
        for rank in 0..RANKS - 1 {
            let (socket, stop, steps) = (&socket, &stop, &steps);
            scope.spawn(move || read_on(socket, rank, stop, steps));
        }
        scope.spawn(|| stand_still(&socket, RANKS - 1, &stop));
        let began = Instant::now();
        let is_read = || steps.load(Relaxed) > STEPS || began.elapsed() > lasts + 2 * MINUTE;
        while began.elapsed() < lasts || !is_read() {
            most = most.max(resident(&daemon));
            thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Relaxed);
    });
    daemon.signal("TERM");
    let ended = daemon.wait(MINUTE);
    let log = std::fs::read_to_string(folder.path().join("consumer.log")).unwrap();
    assert_eq!(ended, Some(0), "{log}");
    let steps = steps.load(Relaxed);
    let bytes = steps * ROWS * (SEQ_LEN + 1) * 2;
    eprintln!(
        "{steps} slices, {:.1} GB in {lasts:?}; at most {:.0} MiB of {} MiB",
        bytes as f64 / 1e9,
        most as f64 / f64::from(1 << 20),
        ARENA_BYTES >> 20
    );
    assert!(steps > STEPS, "the ranks were idle: {steps}");
    assert!(
        most <= ARENA_BYTES + ARENA_BYTES / 10,
        "{most} bytes resident"
    );
}
