//! After a restart the arena stays at one segment until no rank has the last daemon's memory mapped: both
//! together could exceed the trainer's memory limit.

use std::time::Duration;

use batchweave_client::{Batch, Client, ClientError, ConnectOptions, Reader, WaitCause};
use batchweave_consumer::config::ConsumerConfig;
use batchweave_daemon::config::Period;

use crate::serving::{TIMEOUT, options};
use crate::support::{Daemon, Stream, consumer};

/// Steps whose frames fill one segment of 64 KiB, and a few more.
const MORE_THAN_A_SEGMENT: usize = 120;

fn patient(dir: &std::path::Path) -> ConsumerConfig {
    let mut config = consumer(dir);
    config.arena.grow_after = Period::millis(3_600_000);
    config
}

/// Receives and holds batches, at most this many or until one does not arrive; returns the cause of the wait.
fn keep(reader: &mut Reader) -> (Vec<Batch>, Option<(WaitCause, String)>) {
    let mut kept = Vec::new();
    while kept.len() < MORE_THAN_A_SEGMENT {
        match reader.next(Duration::from_secs(3)) {
            Ok(batch) => kept.push(batch.unwrap()),
            Err(ClientError::Timeout { .. }) => return (kept, reader.cause()),
            Err(why) => panic!("{why}"),
        }
    }
    (kept, None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_daemon_grows_once_the_old_arena_is_unmapped() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(400, 20).await;
    let first = Daemon::start(stream.store.clone(), patient(dir.path()));
    let greedy = ConnectOptions {
        // Further batches of the first daemon are received before its end is noticed.
        credits: MORE_THAN_A_SEGMENT as u32 + 10,
        ..options(&first.socket, 0, 1, 0)
    };
    let begun = tokio::task::spawn_blocking(move || {
        let mut reader = Client::connect(greedy).unwrap();
        let (kept, cause) = keep(&mut reader);
        assert_eq!(kept.len(), MORE_THAN_A_SEGMENT, "it grows: {cause:?}");
        (reader, kept)
    });
    let (mut reader, old) = begun.await.unwrap();
    first.kill().await;
    let second = Daemon::start(stream.store.clone(), patient(dir.path()));
    let went_on = tokio::task::spawn_blocking(move || {
        let (kept, cause) = keep(&mut reader);
        assert!(
            kept.len() < MORE_THAN_A_SEGMENT,
            "it has grown beside the old one"
        );
        let (cause, words) = cause.unwrap();
        assert_eq!(cause, WaitCause::ArenaFull);
        assert!(words.ends_with("of the arena's 65536 bytes"), "{words}");
        drop(kept);
        let one = reader.next(TIMEOUT).unwrap();
        assert!(one.is_some(), "it goes on all the same");
        drop(old);
        let (kept, cause) = keep(&mut reader);
        assert_eq!(kept.len(), MORE_THAN_A_SEGMENT, "it grows: {cause:?}");
    });
    went_on.await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_grows_at_once_when_all_ranks_are_here_and_none_has_an_old_arena() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(300, 20).await;
    let mut config = patient(dir.path());
    config.arena.ranks = 2;
    let daemon = Daemon::start(stream.store.clone(), config);
    let greedy = |rank| ConnectOptions {
        credits: MORE_THAN_A_SEGMENT as u32 + 10,
        ..options(&daemon.socket, rank, 2, 0)
    };
    let (first, second) = (greedy(0), greedy(1));
    let all = tokio::task::spawn_blocking(move || {
        let mut alone = Client::connect(first).unwrap();
        let (mut kept, cause) = keep(&mut alone);
        let before = kept.len();
        assert!(
            before < MORE_THAN_A_SEGMENT,
            "the other rank may have an old arena"
        );
        assert_eq!(cause.unwrap().0, WaitCause::ArenaFull);
        let other = Client::connect(second).unwrap();
        while kept.len() < MORE_THAN_A_SEGMENT {
            kept.push(alone.next(TIMEOUT).unwrap().unwrap());
        }
        drop(other);
    });
    all.await.unwrap();
    daemon.stop().await.unwrap();
}
