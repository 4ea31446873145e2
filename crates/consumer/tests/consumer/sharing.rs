//! Ranks that differ only in tensor, context or pipeline coordinates read one data coordinate: the same frames, once
//! in the node's memory, each rank at its own position.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use batchweave_client::{Client, ClientError, ConnectOptions, ErrorName};
use batchweave_core::keys;
use batchweave_store::counting::Counted;
use batchweave_store::{Op, Store};

use crate::refusals::refused;
use crate::serving::{TIMEOUT, check, connect, options, read_in_step};
use crate::support::{Daemon, Stream, consumer};

/// The rank `global` of a mesh where each data coordinate has two ranks.
fn rank(daemon: &Daemon, global: u32) -> ConnectOptions {
    ConnectOptions {
        global_rank: Some(global),
        shared: true,
        ..options(&daemon.socket, global / 2, 2, 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_of_one_coordinate_read_the_same_frames() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(40, 10).await;
    stream.finish().await;
    let counted = Counted::new(stream.store.clone());
    let store: Arc<dyn Store> = Arc::new(counted.clone());
    let daemon = Daemon::start(store, consumer(dir.path()));
    let mut bytes = Vec::new();
    for (id, per_coordinate) in [("b", 1), ("c", 2)] {
        let before = counted.counts();
        let together = Arc::new(Barrier::new(2 * per_coordinate));
        let ranks: Vec<_> = (0..4)
            .step_by(2 / per_coordinate)
            .map(|global| {
                let options = ConnectOptions {
                    attempt: Some(id.repeat(32)),
                    ..rank(&daemon, global)
                };
                read_in_step(options, 4, 1, Some(together.clone()))
            })
            .collect();
        for rank in ranks {
            assert_eq!(rank.await.unwrap(), 40);
        }
        let read = counted.counts().since(&before);
        bytes.push(read.of(Op::GetRange).bytes);
    }
    assert!(bytes[0] > 40 * 4 * 512, "{bytes:?}");
    // For a rank that is a little behind, a frame may be evicted already.
    assert!(
        bytes[1] * 10 < bytes[0] * 13,
        "one copy for two ranks: {bytes:?}"
    );
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_stands_still_or_goes_holds_up_none_of_its_peers() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(60, 20).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let mut still = connect(rank(&daemon, 0)).await;
    let (still, kept) = tokio::task::spawn_blocking(move || {
        let batch = still.next(TIMEOUT).unwrap().unwrap();
        (still, batch)
    })
    .await
    .unwrap();
    let peer = read_in_step(rank(&daemon, 1), 2, 1, None);
    assert_eq!(peer.await.unwrap(), 60);
    check(&kept, 0, 0, 2, 2);
    drop((kept, still));
    // The same rank once more, alone: its attempt continues at its position.
    let again = ConnectOptions {
        resume: true,
        ..rank(&daemon, 0)
    };
    assert_eq!(read_in_step(again, 2, 1, None).await.unwrap(), 60);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_does_not_announce_sharing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(4, 2).await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let first = connect(rank(&daemon, 0)).await;
    let silent = ConnectOptions {
        shared: false,
        ..rank(&daemon, 1)
    };
    for options in [silent, rank(&daemon, 0)] {
        let error = refused(options).await;
        assert_eq!(
            error.name(),
            ErrorName::DuplicateCoordinate.name(),
            "{error}"
        );
        assert!(error.to_string().contains("shared=True"), "{error}");
    }
    let nameless = ConnectOptions {
        global_rank: None,
        ..rank(&daemon, 1)
    };
    let error = tokio::task::spawn_blocking(|| Client::connect(nameless).map(drop))
        .await
        .unwrap()
        .expect_err("who is it?");
    assert!(matches!(error, ClientError::BadHello(_)), "{error}");
    assert!(error.to_string().contains("global_rank"), "{error}");
    drop(first);
    daemon.stop().await.unwrap();
}

/// The progress of a shared coordinate is that of its slowest rank: data is kept until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_of_a_coordinate_is_that_of_its_last_rank() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(30, 10).await;
    stream.finish().await;
    let mut config = consumer(dir.path());
    config.job.progress_steps = 1;
    let daemon = Daemon::start(stream.store.clone(), config);
    let slow = connect(rank(&daemon, 0)).await;
    let slow = tokio::task::spawn_blocking(move || {
        let mut slow = slow;
        for _ in 0..5 {
            let _ = slow.next(TIMEOUT).unwrap();
        }
        slow
    })
    .await
    .unwrap();
    let told = || {
        let keys = stream.store.keys();
        let progress = keys.iter().filter(|key| key.contains("/progress/"));
        let of_first =
            progress.filter_map(|key| keys::parse_progress(key).filter(|p| p.first == 0));
        of_first.map(|found| found.step).max().unwrap_or(0)
    };
    assert_eq!(
        read_in_step(rank(&daemon, 1), 2, 0, None).await.unwrap(),
        30
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(told() <= 5, "its other rank has 5 steps");
    let read_on = tokio::task::spawn_blocking(move || {
        let mut slow = slow;
        while slow.next(TIMEOUT).unwrap().is_some() {}
    });
    read_on.await.unwrap();
    let begun = Instant::now();
    while told() < 30 {
        assert!(begun.elapsed() < TIMEOUT, "at {}", told());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    daemon.stop().await.unwrap();
}
