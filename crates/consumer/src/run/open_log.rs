//! Opening the log, and waiting for a stream that does not exist yet.

use std::sync::Arc;
use std::time::Duration;

use batchweave_daemon::health::Health;
use batchweave_log::{Log, LogError};
use batchweave_store::Store;
use tokio::time::Instant;

use crate::config::FollowTable;
use crate::context::Context;
use crate::error::RunError;

/// The missing stream is logged again after this.
const LOG_AGAIN: Duration = Duration::from_mins(1);

/// Opens the log; waits while the stream does not exist.
pub(crate) async fn open_log(
    store: Arc<dyn Store>,
    table: &FollowTable,
    health: &Health,
) -> Result<Log, RunError> {
    health.not_ready("opening the log");
    let options = Context::system().log_options();
    let mut logged: Option<Instant> = None;
    loop {
        let why = match Log::open(store.clone(), &options).await {
            Ok(log) => return Ok(log),
            Err(why @ LogError::NoStream { .. }) => why.to_string(),
            // A producer creates it with the stream.
            Err(LogError::Store(why)) if why.is_no_folder() => {
                let root = store.root();
                format!("no folder at {root} yet: a producer creates it; or correct store.url")
            }
            Err(why) => return Err(why.into()),
        };
        health.not_ready(format!("waiting for the stream: {why}"));
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_AGAIN) {
            tracing::warn!(%why, "waiting for the stream");
            logged = Some(Instant::now());
        }
        tokio::time::sleep(table.idle.0).await;
    }
}

#[cfg(test)]
mod tests {
    use batchweave_daemon::config::Period;
    use batchweave_daemon::shutdown::unless_stopped;
    use batchweave_store::file::FileStore;
    use batchweave_store::memory::MemoryStore;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_stream_is_shown_in_readyz_and_ends_with_the_daemon() {
        let (health, stop) = (Health::default(), CancellationToken::new());
        let waiting = tokio::spawn({
            let (health, stop) = (health.clone(), stop.clone());
            async move {
                let table = FollowTable::default();
                let open = open_log(MemoryStore::new(), &table, &health);
                unless_stopped(&stop, || health.get().1, open).await
            }
        });
        tokio::time::sleep(Duration::from_mins(3)).await;
        let (ready, reason) = health.get();
        assert!(!ready && !waiting.is_finished());
        for part in [
            "waiting for the stream",
            "start a producer, which creates it",
        ] {
            assert!(reason.contains(part), "{part} in {reason}");
        }
        stop.cancel();
        assert!(waiting.await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_folder_that_a_producer_is_to_create_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("later");
        let store = FileStore::open_later(&folder).await.unwrap();
        let health = Health::default();
        let table = FollowTable {
            idle: Period::millis(1),
            ..FollowTable::default()
        };
        let open = open_log(Arc::new(store), &table, &health);
        let opened = tokio::time::timeout(Duration::from_millis(50), open).await;
        assert!(opened.is_err());
        let reason = health.get().1;
        assert!(reason.contains("no folder at file://"), "{reason}");
        assert!(reason.contains("later yet: a producer"), "{reason}");
    }
}
