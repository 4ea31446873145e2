//! Hints of new records from a store that notices them without requests. Polls find every record; a hint only makes
//! the next one earlier.

use batchweave_core::keys;
use batchweave_store::{ErrorKind, Store, Watch};

/// The watch of `log/`.
#[derive(Debug, Default)]
pub(super) struct Hints {
    watch: Option<Watch>,
    /// The store gives no hints, or can't.
    off: bool,
}

impl Hints {
    /// Whether the store reports new records by itself.
    pub(super) fn are_given(&self) -> bool {
        self.watch.is_some()
    }

    /// Waits until there may be a new record; for ever where the store gives no hints.
    pub(super) async fn changed(&mut self, store: &dyn Store) {
        if self.off {
            return std::future::pending().await;
        }
        let Some(watch) = &mut self.watch else {
            // A record may have appeared before the watch, so it counts as a change.
            return self.open(store).await;
        };
        if let Err(why) = watch.changed().await {
            tracing::debug!(%why, "the watch of the log ended");
            self.watch = None;
        }
    }

    /// Opens the watch. Does not return while there is nothing to watch: the next call tries again.
    async fn open(&mut self, store: &dyn Store) {
        match store.watch(keys::LOG).await {
            Ok(Some(watch)) => {
                self.watch = Some(watch);
                return;
            }
            Ok(None) => self.off = true,
            Err(why) if matches!(why.kind, ErrorKind::NotFound | ErrorKind::NoBucket) => {}
            Err(why) => {
                tracing::warn!(%why, "cannot watch the log; it is polled instead");
                self.off = true;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use batchweave_store::file::FileStore;
    use batchweave_store::memory::MemoryStore;
    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_mins(1);

    async fn put(store: &dyn Store, key: &str) {
        let _ = store.create(key, "{}".into()).await.unwrap();
    }

    #[tokio::test]
    async fn a_record_in_a_folder_is_noticed_once() {
        let root = tempfile::tempdir().unwrap();
        let store = FileStore::open(root.path(), false).await.unwrap();
        let mut hints = Hints::default();
        assert!(timeout(SHORT, hints.changed(&store)).await.is_err());
        put(&store, "log/0.json").await;
        timeout(LONG, hints.changed(&store)).await.unwrap();
        for number in 1..4 {
            assert!(timeout(SHORT, hints.changed(&store)).await.is_err());
            put(&store, "data/d").await;
            put(&store, &format!("log/{number}.json")).await;
            timeout(LONG, hints.changed(&store)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_log_that_is_removed_and_made_again_is_watched_again() {
        let root = tempfile::tempdir().unwrap();
        let store = FileStore::open(root.path(), false).await.unwrap();
        put(&store, "log/0.json").await;
        let mut hints = Hints::default();
        timeout(LONG, hints.changed(&store)).await.unwrap();
        std::fs::remove_dir_all(root.path().join("log")).unwrap();
        timeout(LONG, hints.changed(&store)).await.unwrap();
        assert!(timeout(SHORT, hints.changed(&store)).await.is_err());
        put(&store, "log/0.json").await;
        timeout(LONG, hints.changed(&store)).await.unwrap();
        put(&store, "log/1.json").await;
        timeout(LONG, hints.changed(&store)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_without_hints_gives_none() {
        let store = MemoryStore::new();
        let mut hints = Hints::default();
        assert!(timeout(LONG, hints.changed(store.as_ref())).await.is_err());
        assert!(hints.off);
    }
}
