//! Checkpoint marks and progress in the store: refusals, stored objects, and restarts from them.

use std::collections::BTreeMap;

use batchweave_client::{ConnectOptions, ErrorName, Reader, Start, State};
use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_core::retention::{Mark, Progress};
use batchweave_store::Store;
use tokio::task::spawn_blocking;

use crate::refusals::refused;
use crate::serving::{TIMEOUT, connect, options};
use crate::support::{Daemon, Stream, consumer};

/// A state as the reader's own, with changes.
fn state(reader: &Reader, step: Step, attempt: Option<char>) -> String {
    let id = attempt.map(|c| c.to_string().repeat(32));
    State::new(reader.stream_id(), step, id, Some(0), Some(1)).to_json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wrong_mark_is_refused_by_its_name_and_the_session_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(60, 10).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut reader = connect(options(&daemon.socket, 0, 1, 5)).await;
    let read = spawn_blocking(move || {
        drop(reader.next(TIMEOUT).unwrap());
        let mut names = Vec::new();
        for (step, attempt) in [(61, 'a'), (40, 'a'), (6, 'b'), (4, 'a')] {
            let state = state(&reader, step, Some(attempt));
            names.extend(
                reader
                    .checkpoint(&state)
                    .map_err(|e| e.name().to_owned())
                    .err(),
            );
        }
        let without = state(&reader, 6, None);
        names.extend(
            reader
                .checkpoint(&without)
                .map_err(|e| e.name().to_owned())
                .err(),
        );
        let mut good = String::new();
        for step in 6..60 {
            assert_eq!(reader.next(TIMEOUT).unwrap().unwrap().step(), step);
            if step == 9 {
                good = reader.state_dict();
            }
            // Refusals arrive at any time.
            while step >= 9 && names.len() < 5 {
                match reader.checkpoint(&good) {
                    Ok(()) => break,
                    Err(error) => names.push(error.name().to_owned()),
                }
            }
        }
        reader.close(TIMEOUT).unwrap();
        names
    });
    let names = read.await.unwrap();
    let wanted = [
        ErrorName::MarkInFuture,
        ErrorName::MarkNotDelivered,
        ErrorName::MarkOtherAttempt,
        ErrorName::MarkOtherAttempt,
        ErrorName::MarkOtherAttempt,
    ];
    assert_eq!(names, wanted.map(|name| name.name().to_owned()));
    let mut marks = stream.store.keys();
    marks.retain(|key| keys::parse_mark(key).is_some());
    let [key] = marks.as_slice() else {
        panic!("one good mark, not {marks:?}")
    };
    let body = stream.store.get(key, u64::MAX).await.unwrap();
    let mark = Mark::from_json(&body, key, stream.config.stream_id).unwrap();
    assert_eq!((mark.step, mark.attempt, mark.dp_rank), (10, 0, Some(0)));
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_rank0_one_mark_speaks_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(4, 4).await;
    let mut config = consumer(dir.path());
    config.job.checkpoints = batchweave_consumer::config::Checkpoints::Rank0;
    let daemon = Daemon::start(stream.store.clone(), config);
    for rank in 0..2 {
        let mut reader = connect(options(&daemon.socket, rank, 2, 0)).await;
        let marked = spawn_blocking(move || {
            let state = reader.next(TIMEOUT).unwrap().unwrap().state_dict();
            reader.checkpoint(&state).unwrap();
            reader.close(TIMEOUT)
        });
        marked.await.unwrap().unwrap();
    }
    let mut marks = stream.store.keys();
    marks.retain(|key| key.contains("/marks/"));
    assert_eq!(marks, ["jobs/llm@2/0/marks/000000000001-all.json"]);
    daemon.stop().await.unwrap();
}

/// All slices of a range of steps, read by `dp_size` ranks one after another.
async fn bytes_from(
    daemon: &Daemon,
    attempt: char,
    dp_size: u32,
    start: &Start,
) -> BTreeMap<(Step, u32), Vec<u8>> {
    let mut all = BTreeMap::new();
    for rank in 0..dp_size {
        let wanted = ConnectOptions {
            attempt: Some(attempt.to_string().repeat(32)),
            start: start.clone(),
            ..options(&daemon.socket, rank, dp_size, 0)
        };
        let mut reader = connect(wanted).await;
        let read = spawn_blocking(move || {
            let mut own = Vec::new();
            while let Some(batch) = reader.next(TIMEOUT).unwrap() {
                for slice in batch.slices() {
                    own.push(((batch.step(), slice.index()), slice.bytes().to_vec()));
                }
            }
            own
        });
        all.extend(read.await.unwrap());
    }
    all
}

/// A run with marks every ten steps, then an attempt from each mark, each with another world.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_from_each_mark_gives_identical_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(40, 8).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    let states = spawn_blocking(move || {
        let mut states = Vec::new();
        while let Some(batch) = reader.next(TIMEOUT).unwrap() {
            if (batch.step() + 1) % 10 == 0 {
                states.push(batch.state_dict());
                reader.checkpoint(&batch.state_dict()).unwrap();
            }
        }
        reader.close(TIMEOUT).unwrap();
        states
    })
    .await
    .unwrap();
    let all = bytes_from(&daemon, 'b', 4, &Start::Step(0)).await;
    assert_eq!(all.len(), 160);
    for (i, (state, dp)) in states.iter().zip([4, 2, 4, 1]).enumerate() {
        let id = char::from(b'c' + i as u8);
        let from = bytes_from(&daemon, id, dp, &Start::State(state.clone())).await;
        let first = (i as Step + 1) * 10;
        let wanted: BTreeMap<_, _> = all
            .range((first, 0)..)
            .map(|(k, v)| (*k, v.clone()))
            .collect();
        assert_eq!(from, wanted, "from step {first} with {dp} ranks");
    }
    let manifest = stream.manifest().await;
    let job = &manifest.jobs()[&"llm".parse().unwrap()];
    let parents: Vec<_> = job
        .attempts
        .iter()
        .map(|a| a.parent.map(|p| p.step))
        .collect();
    assert_eq!(
        parents,
        [None, None, Some(10), Some(20), Some(30), Some(40)]
    );
    daemon.stop().await.unwrap();
}

/// A start below the watermark is refused with the oldest checkpoint that works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_below_the_watermark_names_the_oldest_restart_point() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(40, 8).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    let read = spawn_blocking(move || {
        for _ in 0..30 {
            let batch = reader.next(TIMEOUT).unwrap().unwrap();
            if (batch.step() + 1) % 10 == 0 {
                reader.checkpoint(&batch.state_dict()).unwrap();
            }
        }
        reader.close(TIMEOUT).unwrap();
    });
    read.await.unwrap();
    stream.publish_watermark_of_jobs(15).await;
    let below = ConnectOptions {
        attempt: Some("b".repeat(32)),
        ..options(&daemon.socket, 0, 1, 10)
    };
    let error = refused(below).await;
    assert_eq!(error.name(), ErrorName::StepReclaimed.name(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the oldest of job llm that works is step 20"),
        "{text}"
    );
    daemon.stop().await.unwrap();
}

/// Neighbouring coordinates share an object, a newer object replaces an older one, and the progress of a waiting
/// rank is stored immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_one_object_for_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(30, 10).await;
    let mut config = consumer(dir.path());
    config.job.progress_steps = 8;
    let daemon = Daemon::start(stream.store.clone(), config);
    let progress = || {
        let mut all = stream.store.keys();
        all.retain(|key| key.contains("/progress/"));
        all
    };
    let mut readers = Vec::new();
    for rank in 0..2 {
        readers.push(connect(options(&daemon.socket, rank, 2, 0)).await);
    }
    let readers = spawn_blocking(move || {
        for _ in 0..30 {
            for reader in &mut readers {
                drop(reader.next(TIMEOUT).unwrap().unwrap());
            }
        }
        // The ranks wait, since no further step is committed.
        for reader in &mut readers {
            let wait = std::time::Duration::from_millis(150);
            assert_eq!(reader.next(wait).map(drop).unwrap_err().name(), "timeout");
        }
        readers
    });
    let readers = readers.await.unwrap();
    let whole = |keys: &[String]| {
        let [key] = keys else { return false };
        let found = keys::parse_progress(key).unwrap();
        (found.step, found.first, found.last) == (30, 0, 1)
    };
    let begun = std::time::Instant::now();
    while !whole(&progress()) {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", progress());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let key = progress().remove(0);
    let body = stream.store.get(&key, u64::MAX).await.unwrap();
    Progress::from_json(&body, &key, stream.config.stream_id).unwrap();
    drop(readers);
    daemon.stop().await.unwrap();
}

/// Progress beyond the head is not trusted, so a rank behind a range that is quarantined ahead of time reports the
/// head, and again when the head has moved: otherwise producers with a bound would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_stays_at_the_head_and_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(4, 4).await;
    stream.quarantine(60, 4, 11).await;
    let mut config = consumer(dir.path());
    config.job.progress_steps = 8;
    let daemon = Daemon::start(stream.store.clone(), config);
    let mut reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let waiting = spawn_blocking(move || {
        for _ in 0..4 {
            drop(reader.next(TIMEOUT).unwrap().unwrap());
        }
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let wait = std::time::Duration::from_millis(150);
            assert_eq!(reader.next(wait).map(drop).unwrap_err().name(), "timeout");
        }
    });
    for head in [4, 8] {
        let begun = std::time::Instant::now();
        loop {
            let mut all = stream.store.keys();
            all.retain(|key| key.contains("/progress/"));
            let steps: Vec<Step> = all
                .iter()
                .map(|key| keys::parse_progress(key).unwrap().step)
                .collect();
            assert!(steps.iter().all(|step| *step <= head), "{steps:?}");
            if steps == [head] {
                break;
            }
            assert!(begun.elapsed() < TIMEOUT, "{steps:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        if head == 4 {
            stream.commit(4, 4).await;
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    waiting.await.unwrap();
    daemon.stop().await.unwrap();
}
