//! Heartbeats renew the lease of a job while ranks are connected, even if they make no progress.

use std::collections::BTreeSet;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_daemon::config::Period;

use crate::serving::{TIMEOUT, connect, options};
use crate::support::{Daemon, Stream, consumer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_ranks_that_wait_keep_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    // No step is committed, so no rank makes progress.
    let stream = Stream::new(1).await;
    let mut config = consumer(dir.path());
    config.job.lease = Period(Duration::from_secs(1));
    let daemon = Daemon::start(stream.store.clone(), config);
    let reader = connect(options(&daemon.socket, 0, 1, 0)).await;
    let beats = || -> Vec<u64> {
        let all = stream.store.keys();
        let beats = all.iter().filter_map(|key| keys::parse_alive(key));
        beats.map(|alive| alive.beat).collect()
    };
    let begun = std::time::Instant::now();
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        let now = beats();
        assert!(now.len() <= 2, "a beat replaces the one before: {now:?}");
        seen.extend(now);
        assert!(begun.elapsed() < TIMEOUT, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(reader);
    daemon.stop().await.unwrap();
}
