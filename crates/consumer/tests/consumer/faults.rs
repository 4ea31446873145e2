//! Corrupt bytes never reach a rank, reads of a failing store are retried, and reads are as few as expected.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use batchweave_client::{Client, ClientError, ErrorName, WaitCause};
use batchweave_store::counting::Counted;
use batchweave_store::testing::faults::{Fault, FaultStore, Rates};
use batchweave_store::{Op, Store};

use crate::serving::{TIMEOUT, options, read_all, read_in_step};
use crate::support::{Daemon, ROWS, SEQ_LEN, Stream, consumer};

/// Reads one rank until it fails.
pub(crate) async fn failure(daemon: &Daemon, dp_rank: u32) -> (u64, ClientError) {
    let options = options(&daemon.socket, dp_rank, 2, 0);
    let read = move || {
        let mut reader = Client::connect(options).unwrap();
        loop {
            match reader.next(TIMEOUT) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("reached the end"),
                Err(why) => return (reader.next_step(), why),
            }
        }
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

fn name(error: &ClientError) -> &str {
    error.name()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_transfer_is_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(40, 4).await;
    stream.finish().await;
    let faulty = FaultStore::new(stream.store.clone(), 11, []);
    faulty.inject(Op::GetRange, "data/", Fault::FlippedByte);
    let daemon = Daemon::start(Arc::new(faulty.clone()), consumer(dir.path()));
    let ranks: Vec<_> = (0..2)
        .map(|rank| read_all(options(&daemon.socket, rank, 2, 0), 2, 0))
        .collect();
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), 40);
    }
    assert_eq!(faulty.struck(), 1);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_object_is_refused_to_ranks_that_need_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(20, 4).await;
    stream.finish().await;
    let key = stream.data_keys()[2].clone();
    let mut body = stream.store.get(&key, u64::MAX).await.unwrap().to_vec();
    // The last payload byte of the first frame: step 8, slice 0.
    let frame = 64 + 128 + (ROWS * (SEQ_LEN + 1) * 2) as usize;
    body[frame - 1] ^= 1;
    stream.store.overwrite(&key, body.into());
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let (step, error) = failure(&daemon, 0).await;
    let text = error.to_string();
    assert_eq!(
        (step, name(&error)),
        (8, ErrorName::CorruptData.name()),
        "{text}"
    );
    for part in [key.as_str(), "slice 0", "step 8", "CRC32C"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let other = read_all(options(&daemon.socket, 1, 2, 0), 2, 0);
    assert_eq!(other.await.unwrap(), 20, "the other slice is good");
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_and_a_short_one_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(8, 4).await;
    stream.finish().await;
    let key = stream.data_keys()[1].clone();
    let body = stream.store.get(&key, u64::MAX).await.unwrap();
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    stream.store.overwrite(&key, body.slice(..100));
    let (step, error) = failure(&daemon, 0).await;
    assert_eq!(
        (step, name(&error)),
        (4, ErrorName::CorruptData.name()),
        "{error}"
    );
    stream.store.delete(&key).await.unwrap();
    let (step, error) = failure(&daemon, 0).await;
    assert_eq!(
        (step, name(&error)),
        (4, ErrorName::MissingData.name()),
        "{error}"
    );
    let text = error.to_string();
    for part in [
        key.as_str(),
        "(step 4)",
        // The last steps of the object may not be known yet.
        "slices of steps 4 to ",
        "are gone, steps 0 to 3 are not in it",
        "batchweave quarantine 4..",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rough_store_is_not_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(60, 3).await;
    stream.finish().await;
    let rates = Rates {
        delay_max: Duration::from_millis(2),
        ..Rates::rough()
    };
    let faulty = FaultStore::everywhere(stream.store.clone(), 17, rates);
    // Opening is not retried: the supervisor restarts the daemon.
    faulty.set_enabled(false);
    let daemon = Daemon::start(Arc::new(faulty.clone()), consumer(dir.path()));
    let first = tokio::task::spawn_blocking({
        let options = options(&daemon.socket, 0, 4, 0);
        move || Client::connect(options).unwrap()
    });
    drop(first.await.unwrap());
    faulty.set_enabled(true);
    let ranks: Vec<_> = (0..4)
        .map(|rank| read_all(options(&daemon.socket, rank, 4, 0), 4, 0))
        .collect();
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), 60);
    }
    daemon.stop().await.unwrap();
}

/// Throttled reads are retried later, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_reads_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(60, 3).await;
    stream.finish().await;
    let faulty = FaultStore::new(stream.store.clone(), 29, []);
    for _ in 0..4 {
        faulty.inject(Op::GetRange, "data/", Fault::Throttled);
    }
    let daemon = Daemon::start(Arc::new(faulty.clone()), consumer(dir.path()));
    let read = read_all(options(&daemon.socket, 0, 1, 0), 1, 0);
    assert_eq!(read.await.unwrap(), 60);
    assert_eq!(faulty.struck(), 4);
    daemon.stop().await.unwrap();
}

/// When the store does not answer, a second request is sent, and no rank waits for the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_is_never_answered_is_raced() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(60, 3).await;
    stream.finish().await;
    let faulty = FaultStore::new(stream.store.clone(), 23, []);
    let never = Fault::Delay(Duration::from_hours(1));
    faulty.inject(Op::GetRange, "data/", never);
    let daemon = Daemon::start(Arc::new(faulty.clone()), consumer(dir.path()));
    let read = read_all(options(&daemon.socket, 0, 1, 0), 1, 0);
    assert_eq!(read.await.unwrap(), 60);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(400, 20).await;
    stream.finish().await;
    let counted = Counted::new(stream.store.clone());
    let daemon = Daemon::start(Arc::new(counted.clone()), consumer(dir.path()));
    let together = Arc::new(Barrier::new(4));
    let rank = |rank| {
        let options = options(&daemon.socket, rank, 4, 0);
        read_in_step(options, 4, 1, Some(together.clone()))
    };
    let ranks: Vec<_> = (0..4).map(rank).collect();
    for rank in ranks {
        assert_eq!(rank.await.unwrap(), 400);
    }
    let reads = counted.counts().of(Op::GetRange);
    let frame = u64::from(64 + 128 + ROWS * (SEQ_LEN + 1) * 2);
    assert_eq!(reads.bytes, 400 * 4 * frame, "four ranks, no byte twice");
    assert!(
        reads.requests < 200,
        "{} reads for 400 steps: neighbours share a read",
        reads.requests
    );
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_is_named_and_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(4, 4).await;
    stream.finish().await;
    let down = Rates {
        before: 1000,
        ..Rates::default()
    };
    let faulty = FaultStore::new(stream.store.clone(), 19, [(Op::GetRange, down)]);
    let daemon = Daemon::start(Arc::new(faulty.clone()), consumer(dir.path()));
    let options = options(&daemon.socket, 0, 1, 0);
    let read = tokio::task::spawn_blocking(move || {
        let mut reader = Client::connect(options).unwrap();
        let waited = reader.next(Duration::from_secs(3)).map(drop);
        let ClientError::Timeout { cause, detail, .. } = waited.expect_err("nothing can come")
        else {
            panic!("not the error of a wait")
        };
        assert_eq!(cause, Some(WaitCause::StoreUnavailable), "{detail}");
        assert!(detail.contains("made up"), "{detail}");
        let told = reader.watch().cause();
        assert_eq!(told, Some((WaitCause::StoreUnavailable, detail)));
        faulty.set_enabled(false);
        let step = reader.next(TIMEOUT).unwrap().unwrap().step();
        assert_eq!(reader.cause(), None, "over");
        step
    });
    assert_eq!(read.await.unwrap(), 0);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_can_not_be_read_fails_ranks_that_need_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(4, 4).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let begun = options(&daemon.socket, 0, 2, 0);
    let begin = move || drop(Client::connect(begun).unwrap());
    tokio::task::spawn_blocking(begin).await.unwrap();
    // Versions so far: the opening, one batch, the job and its attempt.
    let bad = batchweave_core::keys::log(4);
    stream.store.overwrite(&bad, "no record".into());
    let (step, error) = failure(&daemon, 0).await;
    assert_eq!(
        (step, name(&error)),
        (4, ErrorName::LogUnreadable.name()),
        "{error}"
    );
    assert!(error.to_string().contains(&bad), "{error}");
    daemon.stop().await.unwrap();
}
