//! Progress that a store tells of without requests.

use batchweave_core::flow_control::{HeldBack, Slowest};
use batchweave_store::file::FileStore;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::*;

/// A clock that stands still: who waits by it for longer than nothing waits for ever.
#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        if time.is_zero() {
            return std::future::ready(()).boxed();
        }
        std::future::pending().boxed()
    }
}

fn held_by_the_job() -> HeldBack {
    HeldBack {
        bound: Bound::Steps(16),
        by: Some(Slowest {
            job: job(),
            attempt: Some(0),
            position: 0,
        }),
        lane: None,
        next_step: 16,
    }
}

#[tokio::test]
async fn progress_in_a_folder_is_read_without_a_poll() {
    let memory = stream(&[]).await;
    let mut log = reader(&memory, 7).await;
    let job_opened = open_job(&mut log, 0).await;
    open_attempt(&mut log, job_opened, 0).await;
    let producer = opened(&memory, "p0", 1).await;
    let items: Vec<_> = (0..16).map(|seq| item(&producer, seq, 1)).collect();
    let queue = producer.spawn(dac(1), CommitOptions::default());
    for item in items {
        assert!(queue.submit(item).await);
    }
    queue.close(true).await.unwrap();
    log.catch_up().await.unwrap();
    let root = tempfile::tempdir().unwrap();
    let folder: Arc<dyn Store> = Arc::new(FileStore::open(root.path(), false).await.unwrap());
    publish(&folder, job_opened, 1).await;
    let (status, held) = watch::channel(FlowControlStatus {
        manifest: log.manifest().clone(),
        held: Some(held_by_the_job()),
        held_items: 1,
        lead: None,
    });
    let (reader, mut bounds) = PositionReader::new(steps_ahead(16));
    tokio::spawn(reader.follow(Arc::clone(&folder), Arc::new(Stopped), held, [1; 32]));
    for step in 1..5 {
        publish(&folder, job_opened, step).await;
        let known = |flow: &FlowControl| flow.positions.get(&job()).map(|p| p.step) == Some(step);
        timeout(Duration::from_mins(1), bounds.wait_for(known))
            .await
            .unwrap()
            .unwrap();
    }
    drop(status);
}
