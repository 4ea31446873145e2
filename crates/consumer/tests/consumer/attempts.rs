//! Jobs and attempts in the log: which rank opens one, which ranks wait, and that all nodes agree.

use std::time::{Duration, Instant};

use batchweave_client::{Client, ClientError, ConnectOptions, ErrorName, Reader, Start};
use batchweave_consumer::{RunError, run_on};
use batchweave_core::ids::Step;
use batchweave_core::manifest::entry::Parent;
use batchweave_daemon::Exit;
use batchweave_daemon::config::Period;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::refusals::refused;
use crate::serving::{TIMEOUT, check, connect, options};
use crate::support::{Daemon, Stream, consumer};

fn of(id: char, options: ConnectOptions) -> ConnectOptions {
    ConnectOptions {
        attempt: Some(id.to_string().repeat(32)),
        ..options
    }
}

/// Reads to the stream's end, and compares each step with what was committed.
fn steps_of(options: ConnectOptions, slices: u32) -> tokio::task::JoinHandle<Vec<Step>> {
    spawn_blocking(move || {
        let (rank, size) = (options.dp_rank, options.dp_size);
        let mut reader = Client::connect(options).unwrap();
        let mut steps = Vec::new();
        while let Some(batch) = reader.next(TIMEOUT).unwrap() {
            check(&batch, batch.step(), rank, size, slices);
            steps.push(batch.step());
        }
        steps
    })
}

/// Returns the error of `next`, and the reader.
async fn failure(mut reader: Reader) -> (ClientError, Reader) {
    spawn_blocking(move || {
        loop {
            match reader.next(TIMEOUT) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("reached the end"),
                Err(why) => return (why, reader),
            }
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_attempt_wins_and_the_older_is_told() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(2).await;
    stream.commit(10, 5).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let older = connect(options(&daemon.socket, 0, 1, 0)).await;
    let (older, held) = spawn_blocking(move || {
        let mut reader = older;
        let batch = reader.next(TIMEOUT).unwrap().unwrap();
        (reader, batch)
    })
    .await
    .unwrap();
    let state = held.state_dict();
    // On another node, and with more ranks: they meet in the log.
    let second = Daemon::start(stream.store.clone(), consumer(other.path()));
    let from = ConnectOptions {
        start: Start::State(state),
        ..of('b', options(&second.socket, 0, 2, 1))
    };
    let newer = connect(from).await;
    let (error, mut older) = failure(older).await;
    assert_eq!(error.name(), ErrorName::AttemptSuperseded.name(), "{error}");
    let text = error.to_string();
    let wanted = format!(
        "attempt 0 of job llm is superseded by attempt 1 ({}), which starts at step 1 with 2 data ranks",
        "b".repeat(32)
    );
    assert!(text.contains(&wanted), "{text}");
    check(&held, 0, 0, 1, 2);
    let again = spawn_blocking(move || older.next(TIMEOUT).map(drop).unwrap_err())
        .await
        .unwrap();
    assert_eq!(again.name(), ErrorName::AttemptSuperseded.name(), "{again}");
    let late = refused(options(&daemon.socket, 0, 1, 0)).await;
    assert_eq!(late.name(), ErrorName::AttemptSuperseded.name(), "{late}");

    let manifest = stream.manifest().await;
    let job = &manifest.jobs()[&"llm".parse().unwrap()];
    let (attempt, step) = (0, 1);
    assert_eq!(job.attempts[1].parent, Some(Parent { attempt, step }));
    assert_eq!((job.attempts[1].start, job.attempts[1].dp_size), (1, 2));
    assert_eq!(manifest.void_entries(), 0);
    drop(newer);
    daemon.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_wait_for_rank_0_on_any_node_and_must_agree() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(4).await;
    stream.commit(6, 3).await;
    stream.finish().await;
    let first = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut config = consumer(other.path());
    config.job.open_within = Period::millis(8_000);
    let second = Daemon::start(stream.store.clone(), config);

    let impatient = ConnectOptions {
        timeout: Duration::from_secs(3),
        ..options(&second.socket, 1, 2, 2)
    };
    let error = refused(impatient).await.to_string();
    assert!(
        error.contains("attempt_not_open: rank 0 has not opened attempt aaaa"),
        "{error}"
    );
    let error = refused(options(&second.socket, 1, 2, 2)).await;
    assert_eq!(error.name(), ErrorName::AttemptNotOpened.name(), "{error}");
    assert!(error.to_string().contains("did not within 8s"), "{error}");

    let waits = steps_of(options(&second.socket, 1, 2, 2), 4);
    let opens = steps_of(options(&first.socket, 0, 2, 2), 4);
    assert_eq!(opens.await.unwrap(), [2, 3, 4, 5]);
    assert_eq!(waits.await.unwrap(), [2, 3, 4, 5]);

    let wrong = options(&second.socket, 1, 4, 3);
    let error = refused(wrong).await;
    assert_eq!(error.name(), ErrorName::AttemptDisagrees.name(), "{error}");
    let text = error.to_string();
    for part in [
        "says dp_size 4, the attempt has 2",
        "joins at step 3, the attempt starts at 2",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let nameless = ConnectOptions {
        attempt: None,
        ..options(&second.socket, 1, 2, 2)
    };
    let error = refused(nameless).await;
    assert_eq!(error.name(), ErrorName::NoAttempt.name(), "{error}");
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_closed_or_was_never_opened_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(4, 4).await;
    let mut config = consumer(dir.path());
    (config.job.open, config.job.open_within) = (false, Period::millis(300));
    let daemon = Daemon::start(stream.store.clone(), config.clone());
    let error = refused(options(&daemon.socket, 0, 1, 0)).await;
    assert_eq!(error.name(), ErrorName::JobNotOpen.name(), "{error}");
    assert!(
        error.to_string().contains("`batchweave job open llm`"),
        "{error}"
    );
    // A reader without a job is not affected.
    let alone = ConnectOptions {
        job: None,
        attempt: None,
        ..options(&daemon.socket, 0, 1, 0)
    };
    drop(connect(alone).await);
    daemon.stop().await.unwrap();

    config.job.open = true;
    let daemon = Daemon::start(stream.store.clone(), config);
    let reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    stream.close_job(50).await;
    let (error, _reader) = failure(reader).await;
    assert_eq!(error.name(), ErrorName::JobClosed.name(), "{error}");
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_open_with_other_parameters_stops_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(4, 4).await;
    let config = consumer(dir.path());
    for _ in 0..2 {
        let daemon = Daemon::start(stream.store.clone(), config.clone());
        drop(connect(options(&daemon.socket, 0, 1, 0)).await);
        daemon.stop().await.unwrap();
    }
    assert_eq!(stream.manifest().await.jobs().len(), 1);
    let mut other = config;
    (other.job.keep, other.job.paces) = (5, false);
    other.job.lease = Period::millis(60_000);
    let end = run_on(stream.store.clone(), other, CancellationToken::new());
    let error = end.await.expect_err("taken");
    assert!(matches!(error, RunError::OtherJob { .. }), "{error}");
    assert_eq!(error.exit(), Exit::StreamRefused);
    let text = error.to_string();
    for part in [
        "job llm is open already",
        "keep: the open job has 2, job.keep says 5",
        "paces: the open job has true, job.paces says false",
        "lease: the open job has none, job.lease says 60s",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

/// The set is the one at the attempt's record, on every node and after every restart, regardless of later
/// changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_steps_are_the_same_on_all_nodes_and_after_restarts() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(2).await;
    stream.commit(40, 5).await;
    stream.quarantine(60, 0, 1).await;
    stream.quarantine(61, 10, 14).await;
    stream.quarantine(62, 30, 31).await;
    stream.lift(63, 62).await;
    let first = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let zero = connect(options(&first.socket, 0, 2, 0)).await;
    assert_eq!(zero.next_step(), 2, "the first step after the range");
    stream.quarantine(64, 20, 21).await;
    stream.lift(65, 61).await;
    stream.finish().await;
    let second = Daemon::start(stream.store.clone(), consumer(other.path()));
    let one = steps_of(options(&second.socket, 1, 2, 0), 2);
    let zero = spawn_blocking(move || {
        let mut reader = zero;
        let mut steps = Vec::new();
        while steps.len() < 6 {
            steps.push(reader.next(TIMEOUT).unwrap().unwrap().step());
        }
        (reader, steps)
    });
    let (mut zero, mut steps) = zero.await.unwrap();
    first.kill().await;
    let first = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let rest = spawn_blocking(move || {
        while let Some(batch) = zero.next(TIMEOUT).unwrap() {
            check(&batch, batch.step(), 0, 2, 2);
            steps.push(batch.step());
        }
        steps
    });
    let wanted: Vec<Step> = (2..10).chain(15..40).collect();
    assert_eq!(rest.await.unwrap(), wanted);
    assert_eq!(one.await.unwrap(), wanted);
    // The next attempt uses the set in force then.
    let next = steps_of(of('b', options(&first.socket, 0, 1, 5)), 2);
    let wanted: Vec<Step> = (5..20).chain(22..40).collect();
    assert_eq!(next.await.unwrap(), wanted);
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

/// Each attempt is a record that stays in the log for ever: a flood of hellos opens thirty per minute, and its ranks
/// are notified of the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_attempts_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(2, 2).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let before = Instant::now();
    for n in 0..30 {
        let attempt = Some(format!("{n:032x}"));
        let one = ConnectOptions {
            attempt,
            ..options(&daemon.socket, 0, 1, 0)
        };
        drop(connect(one).await);
    }
    let one_more = ConnectOptions {
        timeout: Duration::from_secs(3),
        ..of('f', options(&daemon.socket, 0, 1, 0))
    };
    let outcome = spawn_blocking(move || Client::connect(one_more).map(drop)).await;
    // On a slow machine the first attempt may be a minute old by now.
    if before.elapsed() < Duration::from_mins(1) {
        let error = outcome.unwrap().unwrap_err().to_string();
        let wanted =
            "attempt_not_open: job llm has opened 30 attempts within 60 s, and the log keeps each";
        assert!(error.contains(wanted), "{error}");
        let manifest = stream.manifest().await;
        let job = &manifest.jobs()[&"llm".parse().unwrap()];
        assert_eq!(job.attempts.last().unwrap().number, 29);
    }
    daemon.stop().await.unwrap();
}
