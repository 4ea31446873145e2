//! Every wait has a cause, which is reported while the rank waits, and in the error of its timeout.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_client::{Batch, Client, ClientError, ConnectOptions, Reader, WaitCause};
use batchweave_consumer::config::ConsumerConfig;
use batchweave_daemon::config::Listen;
use batchweave_store::Op;
use batchweave_store::testing::faults::{Fault, FaultStore, Rates};
use batchweave_testkit::free_port;

use crate::refusals::refused;
use crate::serving::{TIMEOUT, connect, options, read_all, scrape};
use crate::support::{Daemon, Stream, consumer};

/// Long enough for the daemon to notice that a step is late.
const LATE: Duration = Duration::from_millis(700);
const SLOW: Fault = Fault::Delay(Duration::from_secs(20));

/// Returns the daemon's detail in the error of a wait for this cause; the reader reports the same. On a busy machine
/// the first waits may end before the daemon has noticed the cause.
fn detail(reader: &mut Reader, wanted: WaitCause) -> String {
    let begun = Instant::now();
    loop {
        let error = reader.next(LATE).map(drop).expect_err("nothing can come");
        let text = error.to_string();
        let ClientError::Timeout { cause, detail, .. } = error else {
            panic!("not the error of a wait: {text}")
        };
        assert_eq!(reader.cause(), cause.map(|cause| (cause, detail.clone())));
        assert!(cause.is_none_or(|c| text.contains(c.name())), "{text}");
        if cause == Some(wanted) {
            return detail;
        }
        assert!(begun.elapsed() < TIMEOUT, "{text}");
    }
}

/// A store so slow that every read is late.
fn slowly(store: &FaultStore) {
    (0..8).for_each(|_| store.inject(Op::GetRange, "data/", SLOW));
}

/// One segment, so that a rank can fill it.
fn small(dir: &std::path::Path) -> ConsumerConfig {
    let mut config = consumer(dir);
    config.arena.bytes = config.arena.segment_bytes;
    config.prefetch.bytes = config.arena.bytes;
    config
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_is_not_committed_is_being_produced() {
    let dir = tempfile::tempdir().unwrap();
    let stream = Stream::new(1).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let options = options(&daemon.socket, 0, 1, 0);
    let connected = move || Client::connect(options).unwrap();
    let told = blocking(move || detail(&mut connected(), WaitCause::Producing)).await;
    assert_eq!(told, "the stream's head is at step 0");
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_is_fetched_from() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(4, 4).await;
    let store = FaultStore::new(stream.store.clone(), 31, []);
    slowly(&store);
    let daemon = Daemon::start(Arc::new(store), consumer(dir.path()));
    let options = options(&daemon.socket, 0, 1, 0);
    let connected = move || Client::connect(options).unwrap();
    blocking(move || detail(&mut connected(), WaitCause::Fetching)).await;
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_holds_too_much_is_told_what() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(9, 3).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let options = options(&daemon.socket, 0, 1, 0);
    let told = blocking(move || {
        let mut reader = Client::connect(options).unwrap();
        let held: Vec<Batch> = (0..4)
            .filter_map(|_| reader.next(TIMEOUT).unwrap())
            .collect();
        let error = reader
            .next(LATE)
            .map(drop)
            .expect_err("all credits are held");
        drop(held);
        assert_eq!(reader.next(TIMEOUT).unwrap().unwrap().step(), 4);
        error
    })
    .await;
    assert_eq!(told.name(), "frames_held", "{told}");
    for part in ["step 0 (slices [0])", "step 3", "credits"] {
        assert!(told.to_string().contains(part), "{told}");
    }
    daemon.stop().await.unwrap();
}

/// Receives until the arena is full; returns the steps that are held, and the daemon's words.
fn keep_all(reader: &mut Reader) -> (Vec<Batch>, String) {
    let (mut held, begun) = (Vec::new(), Instant::now());
    loop {
        match reader.next(LATE) {
            Ok(batch) => held.push(batch.unwrap()),
            Err(ClientError::Timeout { .. }) => match reader.cause() {
                Some((WaitCause::ArenaFull, words)) => return (held, words),
                other => assert!(begun.elapsed() < TIMEOUT, "{other:?}"),
            },
            Err(why) => panic!("{why}"),
        }
    }
}

/// The two steps that each rank may hold are most of this arena. Another rank waits for room, then for a frame that
/// found no room earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_arena_is_named_and_so_is_what_it_delays() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(80).await;
    stream.commit(20, 20).await;
    let store = FaultStore::new(stream.store.clone(), 37, []);
    let daemon = Daemon::start(Arc::new(store.clone()), small(dir.path()));
    let greedy = ConnectOptions {
        credits: 300,
        ..options(&daemon.socket, 0, 2, 0)
    };
    let other = options(&daemon.socket, 1, 2, 0);
    blocking(move || {
        let mut greedy = Client::connect(greedy).unwrap();
        let (mut held, words) = keep_all(&mut greedy);
        assert_eq!(held.len(), 2);
        assert!(
            words.starts_with("the rank holds 2 steps, its share of the arena; "),
            "{words}"
        );
        assert!(words.ends_with("of the arena's 65536 bytes"), "{words}");
        let mut other = Client::connect(other).unwrap();
        let words = detail(&mut other, WaitCause::ArenaFull);
        assert!(words.starts_with("ranks hold "), "{words}");
        slowly(&store);
        drop(held.remove(0));
        detail(&mut other, WaitCause::Backpressure);
        assert_eq!(other.next(TIMEOUT).unwrap().unwrap().step(), 0);
        assert_eq!(other.cause(), None, "it has come");
    })
    .await;
    daemon.stop().await.unwrap();
}

/// A rank that requests all frames and releases none holds half of the arena; the other continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greedy_rank_delays_no_other_rank() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(300, 20).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), small(dir.path()));
    let greedy = ConnectOptions {
        credits: 1_024,
        ..options(&daemon.socket, 0, 2, 0)
    };
    let greedy = blocking(move || {
        let mut greedy = Client::connect(greedy).unwrap();
        let (held, _) = keep_all(&mut greedy);
        assert_eq!(greedy.cause().unwrap().0, WaitCause::ArenaFull);
        assert!((40..60).contains(&held.len()), "half: {}", held.len());
        (greedy, held)
    })
    .await;
    let read = read_all(options(&daemon.socket, 1, 2, 0), 2, 3);
    assert_eq!(read.await.unwrap(), 300);
    drop(greedy);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_waits_for_a_job_or_an_attempt_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(2, 2).await;
    let mut config = consumer(dir.path());
    config.job.open = false;
    let daemon = Daemon::start(stream.store.clone(), config);
    let impatient = |rank| ConnectOptions {
        timeout: 4 * LATE,
        ..options(&daemon.socket, rank, 2, 0)
    };
    let error = refused(impatient(0)).await.to_string();
    assert!(
        error.contains("job_not_open: job llm is not open"),
        "{error}"
    );
    daemon.stop().await.unwrap();
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let impatient = ConnectOptions {
        timeout: 4 * LATE,
        ..options(&daemon.socket, 1, 2, 0)
    };
    let error = refused(impatient).await.to_string();
    let words = "attempt_not_open: rank 0 has not opened attempt";
    assert!(error.contains(words), "{error}");
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_opens_an_attempt_while_the_store_is_down_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(2, 2).await;
    let down = Rates {
        before: 1000,
        ..Rates::default()
    };
    let store = FaultStore::everywhere(stream.store.clone(), 43, down);
    store.set_enabled(false);
    let daemon = Daemon::start(Arc::new(store.clone()), consumer(dir.path()));
    let served = ConnectOptions {
        job: None,
        attempt: None,
        ..options(&daemon.socket, 0, 1, 0)
    };
    drop(connect(served).await);
    store.set_enabled(true);
    // At first the attempt is being opened; after some failures the store is known to be unavailable.
    let mut told = Vec::new();
    while !told
        .iter()
        .any(|text: &String| text.contains("store_unavailable: "))
    {
        let impatient = ConnectOptions {
            timeout: 2 * LATE,
            ..options(&daemon.socket, 0, 1, 0)
        };
        let error = refused(impatient).await.to_string();
        let first = "attempt_not_open: the record of attempt aaaa";
        assert!(
            error.contains("store_unavailable: ") || error.contains(first),
            "{error}"
        );
        told.push(error);
        assert!(told.len() < 60, "{told:?}");
    }
    store.set_enabled(false);
    drop(connect(options(&daemon.socket, 0, 1, 0)).await);
    daemon.stop().await.unwrap();
}

/// The time that a rank waits is counted by cause while it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_is_counted_by_its_cause() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(9, 3).await;
    let mut config = consumer(dir.path());
    let address = free_port();
    config.admin.listen = Listen(Some(address));
    let daemon = Daemon::start(stream.store.clone(), config);
    let mut reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    let waits = blocking(move || {
        let held: Vec<Batch> = (0..4)
            .filter_map(|_| reader.next(TIMEOUT).unwrap())
            .collect();
        // Progress is reported once per second.
        let error = reader.next(4 * LATE).map(drop).unwrap_err();
        assert_eq!(error.name(), "frames_held", "{error}");
        drop(held);
        for step in 4..9 {
            assert_eq!(reader.next(TIMEOUT).unwrap().unwrap().step(), step);
        }
        let _ = reader.next(4 * LATE).map(drop).unwrap_err();
        reader
    });
    let reader = waits.await;
    for cause in ["held_frames", "producing"] {
        let line = format!(
            "batchweave_consumer_rank_wait_seconds_total{{cause=\"{cause}\",dp_rank=\"0\"}} "
        );
        let metrics = scrape(address).await;
        let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
        let seconds: f64 = value.unwrap_or("0").parse().unwrap();
        assert!(seconds > 0.5, "{cause}: {metrics}");
    }
    drop(reader);
    daemon.stop().await.unwrap();
}
