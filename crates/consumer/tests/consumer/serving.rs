//! Ranks of a daemon in this process: every rank receives exactly its slices, regardless of crashes.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::support::{Daemon, Stream, bytes, consumer};
use batchweave_client::{Batch, Client, ConnectOptions, Reader, Start};
use batchweave_core::ids::Step;
use batchweave_daemon::config::Listen;
use batchweave_testkit::free_port;
use tokio::task::JoinHandle;

pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn options(socket: &Path, dp_rank: u32, dp_size: u32, start: Step) -> ConnectOptions {
    ConnectOptions {
        job: Some("llm".into()),
        attempt: Some("a".repeat(32)),
        dp_rank,
        dp_size,
        global_rank: Some(dp_rank),
        start: Start::Step(start),
        timeout: TIMEOUT,
        ..ConnectOptions::new(socket)
    }
}

/// Compares a batch with the tokens that were committed.
pub(crate) fn check(batch: &Batch, step: Step, dp_rank: u32, dp_size: u32, slices: u32) {
    assert_eq!(batch.step(), step);
    let each = slices / dp_size;
    let got: Vec<u32> = batch
        .slices()
        .iter()
        .map(batchweave_client::Slice::index)
        .collect();
    let want: Vec<u32> = (dp_rank * each..(dp_rank + 1) * each).collect();
    assert_eq!(got, want, "step {step}");
    for slice in batch.slices() {
        let tokens: &[u16] = slice.array("tokens").unwrap();
        let found: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        assert_eq!(
            found,
            bytes(step, slice.index()),
            "step {step} slice {}",
            slice.index()
        );
    }
}

/// Reads to the end on a thread of its own; `held` batches are kept and compared again when dropped.
pub(crate) fn read_all(options: ConnectOptions, slices: u32, held: usize) -> JoinHandle<Step> {
    read_in_step(options, slices, held, None)
}

/// The same; with a barrier, ranks take each step together, as in training.
pub(crate) fn read_in_step(
    options: ConnectOptions,
    slices: u32,
    held: usize,
    together: Option<Arc<Barrier>>,
) -> JoinHandle<Step> {
    tokio::task::spawn_blocking(move || {
        let (rank, size) = (options.dp_rank, options.dp_size);
        let Start::Step(mut step) = options.start else {
            panic!("starts at a step")
        };
        let mut reader = Client::connect(options).unwrap();
        let mut kept: Vec<Batch> = Vec::new();
        while let Some(batch) = reader.next(TIMEOUT).unwrap() {
            check(&batch, step, rank, size, slices);
            kept.push(batch);
            if kept.len() > held {
                let old = kept.remove(0);
                check(&old, old.step(), rank, size, slices);
            }
            step += 1;
            if let Some(barrier) = &together {
                barrier.wait();
            }
        }
        step
    })
}

pub(crate) async fn connect(options: ConnectOptions) -> Reader {
    tokio::task::spawn_blocking(|| Client::connect(options).unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rank_gets_every_slice_at_any_divisor() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(60, 7).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    for dp_size in [1, 2, 4] {
        let ranks: Vec<_> = (0..dp_size)
            .map(|rank| {
                let mut options = options(&daemon.socket, rank, dp_size, 3);
                options.attempt = Some(format!("{dp_size:032x}"));
                read_all(options, 4, 1)
            })
            .collect();
        for rank in ranks {
            assert_eq!(rank.await.unwrap(), 60);
        }
    }
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_wait_for_steps_that_are_committed_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let ranks: Vec<_> = (0..2)
        .map(|rank| read_all(options(&daemon.socket, rank, 2, 0), 2, 0))
        .collect();
    for _ in 0..10 {
        stream.commit(3, 3).await;
    }
    stream.finish().await;
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), 30);
    }
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_outlive_daemons() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(20, 5).await;
    let mut daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let ranks: Vec<_> = (0..4)
        .map(|rank| read_all(options(&daemon.socket, rank, 4, 0), 4, 2))
        .collect();
    for round in 0..4 {
        stream.commit(20, 5).await;
        if round % 2 == 0 {
            daemon.kill().await;
        } else {
            daemon.stop().await.unwrap();
        }
        daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    }
    stream.finish().await;
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), 100);
    }
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_stops_reading_delays_no_other_rank() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    // 2,000 steps are many times the size of an arena of one segment.
    stream.commit(2000, 100).await;
    stream.finish().await;
    let mut config = consumer(dir.path());
    config.arena.bytes = config.arena.segment_bytes;
    config.prefetch.bytes = config.arena.bytes;
    let daemon = Daemon::start(stream.store.clone(), config);
    let mut idle = connect(options(&daemon.socket, 0, 2, 0)).await;
    let busy = read_all(options(&daemon.socket, 1, 2, 0), 2, 1);
    assert_eq!(busy.await.unwrap(), 2000);
    let first = tokio::task::spawn_blocking(move || {
        let batch = idle.next(TIMEOUT).unwrap().unwrap();
        check(&batch, 0, 0, 2, 2);
        batch.step()
    });
    assert_eq!(first.await.unwrap(), 0);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_dies_leaves_its_frames_and_its_coordinate() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(300, 50).await;
    stream.finish().await;
    let mut config = consumer(dir.path());
    config.arena.bytes = config.arena.segment_bytes;
    config.prefetch.bytes = config.arena.bytes;
    let daemon = Daemon::start(stream.store.clone(), config);
    for _ in 0..5 {
        let reader = connect(options(&daemon.socket, 0, 2, 0)).await;
        drop(reader);
    }
    assert_eq!(
        read_all(options(&daemon.socket, 0, 2, 0), 2, 1)
            .await
            .unwrap(),
        300
    );
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_are_stored_and_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(5, 5).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    let marked = tokio::task::spawn_blocking(move || {
        let batch = reader.next(TIMEOUT).unwrap().unwrap();
        reader.checkpoint(&batch.state_dict()).unwrap();
        drop(batch);
        reader.close(TIMEOUT)
    });
    marked.await.unwrap().unwrap();
    let keys = stream.store.keys();
    assert!(
        keys.iter()
            .any(|k| k == "jobs/llm@2/0/marks/000000000001-0.json"),
        "{keys:?}"
    );
    daemon.stop().await.unwrap();
}

/// Returns the value of a metric line, 0 without one.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_name_a_missing_daemon_and_forget_ranks_that_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(2, 2).await;
    let first = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut reader = connect(options(&first.socket, 0, 1, 0)).await;
    let (reading, done) = std::sync::mpsc::channel();
    let rank = tokio::task::spawn_blocking(move || {
        for step in 0..6 {
            check(&reader.next(TIMEOUT).unwrap().unwrap(), step, 0, 1, 1);
            reading.send(step).unwrap();
            // Progress is reported once per second.
            std::thread::sleep(Duration::from_millis(if step == 3 { 1100 } else { 0 }));
        }
        reader
    });
    let read_to = |step| tokio::task::block_in_place(|| while done.recv().unwrap() < step {});
    read_to(1);
    first.kill().await;
    let without = Duration::from_millis(400);
    tokio::time::sleep(without).await;
    let address = free_port();
    let mut config = consumer(dir.path());
    config.admin.listen = Listen(Some(address));
    stream.commit(4, 1).await;
    let second = Daemon::start(stream.store.clone(), config);
    stream.finish().await;
    let reader = rank.await.unwrap();
    let metrics = scrape(address).await;
    let waited = |cause| {
        let labels = format!("{{cause=\"{cause}\",dp_rank=\"0\"}}");
        value(
            &metrics,
            &format!("batchweave_consumer_rank_wait_seconds_total{labels}"),
        )
    };
    let restarting = waited("daemon_restarting");
    assert!(restarting > without.as_secs_f64() / 2.0, "{metrics}");
    for other in ["held_frames", "producing", "fetching", "short"] {
        assert!(waited(other) < restarting, "{other}: {metrics}");
    }
    let errors = "batchweave_consumer_store_errors_total{class=\"log\",op=\"get\"}";
    assert!(metrics.contains(&format!("{errors} 0\n")), "{metrics}");
    let shown = "batchweave_consumer_rank_step{dp_rank=\"0\"}";
    drop(reader);
    while scrape(address).await.contains(shown) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    second.stop().await.unwrap();
}

pub(crate) async fn scrape(address: std::net::SocketAddr) -> String {
    let get = move || {
        use std::io::{Read, Write};
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        connection
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    };
    tokio::task::spawn_blocking(get).await.unwrap()
}
