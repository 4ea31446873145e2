//! The progress of connected ranks is stored regardless of ranks that have disconnected.

use std::time::{Duration, Instant};

use batchweave_client::{Client, Reader};
use batchweave_core::ids::Step;
use batchweave_core::keys;
use tokio::task::spawn_blocking;

use crate::serving::{TIMEOUT, options};
use crate::support::{Daemon, Stream, consumer};

async fn read(mut reader: Reader, end: Step) -> Reader {
    let read = spawn_blocking(move || {
        while reader.next_step() < end {
            drop(reader.next(TIMEOUT).unwrap().unwrap());
        }
        reader
    });
    read.await.unwrap()
}

/// The rank may read on another node by then, and producers wait for the slowest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_is_gone_holds_up_no_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(4).await;
    stream.commit(60, 9).await;
    let mut config = consumer(dir.path());
    config.job.progress_steps = 1;
    let daemon = Daemon::start(stream.store.clone(), config);
    let connect = |rank| {
        let options = options(&daemon.socket, rank, 2, 0);
        spawn_blocking(move || Client::connect(options).unwrap())
    };
    let (stays, leaves) = tokio::join!(connect(0), connect(1));
    let stays = read(stays.unwrap(), 20).await;
    let leaves = read(leaves.unwrap(), 20).await;
    spawn_blocking(|| leaves.close(TIMEOUT).unwrap())
        .await
        .unwrap();
    let mut stays = read(stays, 60).await;
    // It waits for a step that is never committed, so that it reports its position.
    let begun = Instant::now();
    loop {
        let waits = spawn_blocking(move || {
            let waited = stays.next(Duration::from_secs(1)).map(drop);
            (stays, waited.is_err())
        });
        let late;
        (stays, late) = waits.await.unwrap();
        assert!(late);
        let reached = stream
            .store
            .keys()
            .into_iter()
            .filter_map(|key| {
                let told = keys::parse_progress(&key)?;
                (told.first == 0).then_some(told.step)
            })
            .max();
        if reached == Some(60) {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{reached:?}");
    }
    drop(stays);
    daemon.stop().await.unwrap();
}
