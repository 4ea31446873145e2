//! Deliveries that a dead daemon did not record are read from the store's indexes: only these, concurrently, in
//! spite of store failures, and without delaying other marks.

use std::sync::Arc;
use std::time::Duration;

use batchweave_client::{Batch, Client, ConnectOptions};
use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_store::Op;
use batchweave_store::counting::Counted;
use batchweave_store::memory::MemoryStore;
use batchweave_store::testing::faults::{Fault, FaultStore};
use tokio::task::spawn_blocking;

use crate::ledger::{Seen, attempt, last_state};
use crate::serving::{TIMEOUT, options};
use crate::support::{Daemon, Stream, consumer};

fn resumed(daemon: &Daemon, rank: u32, dp: u32, from: Step) -> ConnectOptions {
    ConnectOptions {
        resume: from > 0,
        ..options(&daemon.socket, rank, dp, from)
    }
}

/// Reads up to `end` and marks after each step of `marks`; then closes, or holds the last `held` batches until its
/// socket is gone, like a rank that is killed.
async fn read(options: ConnectOptions, end: Step, marks: &[Step], held: Option<usize>) {
    let marks = marks.to_vec();
    let read = spawn_blocking(move || {
        let mut reader = Client::connect(options).unwrap();
        let mut last: Vec<Batch> = Vec::new();
        while reader.next_step() < end {
            let batch = reader.next(TIMEOUT).unwrap().unwrap();
            if marks.contains(&(batch.step() + 1)) {
                reader.checkpoint(&batch.state_dict()).unwrap();
            }
            last.push(batch);
            if last.len() > held.unwrap_or_default() {
                last.remove(0);
            }
        }
        match held {
            None => reader.close(TIMEOUT).unwrap(),
            Some(_) => drop(reader),
        }
    });
    read.await.unwrap();
}

async fn read_all(daemon: &Daemon, dp: u32, from: Step, end: Step, held: Option<usize>) {
    let ranks = (0..dp).map(|rank| read(resumed(daemon, rank, dp, from), end, &[], held));
    futures::future::join_all(ranks).await;
}

fn marks(store: &MemoryStore) -> Vec<(Step, Option<u32>)> {
    let all = store.keys();
    let marks = all.iter().filter_map(|key| keys::parse_mark(key));
    marks.map(|mark| (mark.step, mark.coordinate)).collect()
}

async fn eventually(what: &str, done: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A killed rank has received steps that it did not report; it reports them when it reconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_is_killed_late_in_an_attempt_is_not_told_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(700, 10).await;
    stream.finish().await;
    let counted = Counted::with_classes(stream.store.clone(), &keys::CLASSES);
    let daemon = Daemon::start(Arc::new(counted.clone()), consumer(dir.path()));
    // The other rank stays connected, so that the daemon keeps the attempt.
    let mut other = Client::connect(options(&daemon.socket, 0, 2, 0)).unwrap();
    for (from, end) in [(0, 600), (600, 650), (650, 690)] {
        let killed = read(resumed(&daemon, 1, 2, from), end, &[], Some(3));
        let reads = spawn_blocking(move || {
            while other.next_step() < end {
                drop(other.next(TIMEOUT).unwrap().unwrap());
            }
            other
        });
        killed.await;
        other = reads.await.unwrap();
    }
    read(resumed(&daemon, 1, 2, 690), 700, &[], None).await;
    spawn_blocking(move || {
        while other.next(TIMEOUT).unwrap().is_some() {}
        other.close(TIMEOUT).unwrap();
    })
    .await
    .unwrap();
    daemon.stop().await.unwrap();

    let seen = Seen::read(&stream.store, &stream).await;
    let proven = seen.prove().unwrap();
    assert_eq!((proven[0].end, proven[0].again), (700, 0), "{proven:?}");
    // Two ranks and 70 objects, some read in several parts; no index is read.
    assert_eq!(counted.counts().of(Op::Head).requests, 0);
}

/// Each index is read once for all ranks, by one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_daemon_delivered_is_read_once_for_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(180, 9).await;
    stream.finish().await;
    let deaf = FaultStore::new(stream.store.clone(), 5, []);
    store_nothing_of_jobs(&deaf);
    let daemon = Daemon::start(Arc::new(deaf), consumer(dir.path()));
    read_all(&daemon, 4, 0, 180, Some(0)).await;
    daemon.kill().await;
    let counted = Counted::with_classes(stream.store.clone(), &keys::CLASSES);
    let daemon = Daemon::start(Arc::new(counted.clone()), consumer(dir.path()));
    read_all(&daemon, 4, 180, 180, None).await;
    daemon.stop().await.unwrap();
    let seen = Seen::read(&stream.store, &stream).await;
    let proven = seen.prove().unwrap();
    assert_eq!((proven[0].end, proven[0].again), (180, 0));
    let counts = counted.counts();
    assert_eq!(counts.of(Op::GetRange).requests, 20, "one per object");
    assert_eq!(counts.of(Op::Head).requests, 0);
}

/// A store that answers nothing for some seconds, at each of the reads of a recall.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_for_seconds_makes_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(60, 60).await;
    stream.finish().await;
    let deaf = FaultStore::new(stream.store.clone(), 6, []);
    store_nothing_of_jobs(&deaf);
    let daemon = Daemon::start(Arc::new(deaf), consumer(dir.path()));
    read_all(&daemon, 2, 0, 60, Some(0)).await;
    daemon.kill().await;
    let down = FaultStore::new(stream.store.clone(), 7, []);
    // More failures than attempts of one read, which are 5 and 6.
    for _ in 0..6 {
        down.inject(Op::List, "jobs/", Fault::Before);
    }
    for _ in 0..7 {
        down.inject(Op::GetRange, "data/", Fault::Before);
    }
    let daemon = Daemon::start(Arc::new(down.clone()), consumer(dir.path()));
    read_all(&daemon, 2, 60, 60, None).await;
    let ledgers = || {
        stream
            .store
            .keys()
            .iter()
            .any(|key| keys::parse_ledger(key).is_some())
    };
    eventually("a ledger", ledgers).await;
    daemon.stop().await.unwrap();
    assert_eq!(down.struck(), 13);
    let seen = Seen::read(&stream.store, &stream).await;
    let proven = seen.prove().unwrap();
    assert_eq!((proven[0].end, proven[0].again), (60, 0));
}

/// While one rank's hole can't be read, other ranks' marks are stored, its own is not; and a further kill
/// loses nothing, though steps behind the hole are stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_of_ranks_without_a_hole_do_not_wait_and_a_further_kill_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(200, 50).await;
    stream.finish().await;
    let store = stream.store.clone();
    let deaf = FaultStore::new(store.clone(), 7, []);
    let daemon = Daemon::start(Arc::new(deaf.clone()), consumer(dir.path()));
    read_all(&daemon, 2, 0, 100, None).await;
    read(resumed(&daemon, 0, 2, 100), 200, &[200], None).await;
    eventually("the first mark", || marks(&store).len() == 1).await;
    store_nothing_of_jobs(&deaf);
    read(resumed(&daemon, 1, 2, 100), 150, &[], Some(0)).await;
    daemon.kill().await;

    let stuck = FaultStore::new(store.clone(), 8, []);
    let object = stream.data_keys()[2].clone();
    for _ in 0..64 {
        stuck.inject(Op::GetRange, &object, Fault::Delay(Duration::from_hours(1)));
    }
    let daemon = Daemon::start(Arc::new(stuck), consumer(dir.path()));
    // Rank 1 continues behind its hole, and rank 0 marks once more.
    let behind = resumed(&daemon, 1, 2, 150);
    let behind = tokio::spawn(async move { read(behind, 200, &[180], Some(0)).await });
    behind.await.unwrap();
    let mut again = resumed(&daemon, 0, 2, 199);
    again.credits = 2;
    read(again, 200, &[200], None).await;
    let behind = |store: &MemoryStore| {
        let all = store.keys();
        let ledgers = all.iter().filter_map(|key| keys::parse_ledger(key));
        ledgers.filter(|l| l.first >= 150).count() > 0
    };
    eventually("steps behind the hole", || behind(&store)).await;
    assert_eq!(marks(&store), [(200, Some(0))], "the other one waits");
    daemon.kill().await;

    let daemon = Daemon::start(store.clone(), consumer(dir.path()));
    read(resumed(&daemon, 1, 2, 200), 200, &[], None).await;
    daemon.stop().await.unwrap();
    let seen = Seen::read(&store, &stream).await;
    let proven = seen.prove().unwrap();
    assert_eq!(proven[0].end, 200);
}

/// The node of an attempt ends for good during an outage, with ledgers that it did not store, and the next attempt
/// begins elsewhere, with another number of ranks. `verify --job` needs no `--mend`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_attempt_records_what_an_ended_node_did_not_store() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(4).await;
    stream.commit(200, 20).await;
    stream.finish().await;
    let store = stream.store.clone();
    let deaf = FaultStore::new(store.clone(), 9, []);
    store_nothing_of_jobs(&deaf);
    let daemon = Daemon::start(Arc::new(deaf), consumer(there.path()));
    let state = last_state(attempt(&daemon, 1, 4, "", 130, false)).await;
    daemon.kill().await;
    for (id, dp, end) in [(2, 2, 170), (3, 4, 200)] {
        let daemon = Daemon::start(store.clone(), consumer(here.path()));
        let _ = last_state(attempt(&daemon, id, dp, &state, end, true)).await;
        daemon.stop().await.unwrap();
    }
    let seen = Seen::read(&store, &stream).await;
    let proven = seen.prove().unwrap();
    let legs = proven
        .iter()
        .map(|p| (p.leg.attempt, p.end, p.recorded_again));
    assert_eq!(legs.collect::<Vec<_>>(), [(0, 120, 4 * 120), (2, 200, 0)]);
}

/// A watermark that follows from the marks of the new attempt lets the data go: they wait until it is not needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_wait_until_the_ledgers_of_the_attempt_before_are_whole() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(4).await;
    stream.commit(200, 20).await;
    stream.finish().await;
    let store = stream.store.clone();
    let deaf = FaultStore::new(store.clone(), 10, []);
    store_nothing_of_jobs(&deaf);
    let daemon = Daemon::start(Arc::new(deaf), consumer(there.path()));
    let state = last_state(attempt(&daemon, 1, 2, "", 130, false)).await;
    daemon.kill().await;
    let stuck = FaultStore::new(store.clone(), 11, []);
    let object = stream.data_keys()[2].clone();
    for _ in 0..64 {
        stuck.inject(Op::GetRange, &object, Fault::Delay(Duration::from_hours(1)));
    }
    let daemon = Daemon::start(Arc::new(stuck), consumer(here.path()));
    let _ = last_state(attempt(&daemon, 2, 2, &state, 170, false)).await;
    let own = |attempt| {
        let keys = store.keys();
        let mut ledgers = keys.iter().filter_map(|key| keys::parse_ledger(key));
        ledgers.any(|ledger| ledger.owner.attempt == attempt)
    };
    eventually("the new attempt's ledger", || own(1)).await;
    assert!(marks(&store).is_empty(), "step 160 is marked");
    daemon.kill().await;
    let daemon = Daemon::start(store.clone(), consumer(here.path()));
    let _ = last_state(attempt(&daemon, 3, 2, &state, 200, true)).await;
    daemon.stop().await.unwrap();
    assert!(own(0) && !marks(&store).is_empty());
    assert_eq!(
        Seen::read(&store, &stream).await.prove().unwrap()[0].end,
        120
    );
}

/// From now on a daemon on this store dies before it has stored a ledger.
fn store_nothing_of_jobs(store: &FaultStore) {
    for _ in 0..64 {
        let never = Fault::Delay(Duration::from_hours(1));
        store.inject(Op::Create, "jobs/", never);
    }
}
