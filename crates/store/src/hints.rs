//! Hints of new objects from a store that notices them without requests. Polls find every object; a hint only makes
//! the next one earlier.

use crate::{ErrorKind, Store, Watch};

/// The watch of one prefix, opened once there is something to watch, and again when that was removed.
#[derive(Debug)]
pub struct Hints {
    prefix: String,
    watch: Option<Watch>,
    /// The store gives no hints, or can't.
    off: bool,
}

impl Hints {
    /// Returns hints of the objects directly below `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            watch: None,
            off: false,
        }
    }

    /// Returns the watched prefix.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the store reports new objects by itself.
    pub fn are_given(&self) -> bool {
        self.watch.is_some()
    }

    /// Waits until there may be a new object; for ever where the store gives no hints.
    pub async fn changed(&mut self, store: &dyn Store) {
        if self.off {
            return std::future::pending().await;
        }
        let Some(watch) = &mut self.watch else {
            // An object may have appeared before the watch, so it counts as a change.
            return self.open(store).await;
        };
        if let Err(why) = watch.changed().await {
            tracing::debug!(prefix = self.prefix, %why, "the watch of the store ended");
            self.watch = None;
        }
    }

    /// Opens the watch. Does not return while there is nothing to watch: the next call tries again.
    async fn open(&mut self, store: &dyn Store) {
        match store.watch(&self.prefix).await {
            Ok(Some(watch)) => {
                self.watch = Some(watch);
                return;
            }
            Ok(None) => self.off = true,
            Err(why) if matches!(why.kind, ErrorKind::NotFound | ErrorKind::NoBucket) => {}
            Err(why) => {
                tracing::warn!(prefix = self.prefix, %why, "cannot watch the store; it is polled instead");
                self.off = true;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::file::FileStore;
    use crate::memory::MemoryStore;
    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_mins(1);

    async fn put(store: &dyn Store, key: &str) {
        let _ = store.create(key, "{}".into()).await.unwrap();
    }

    #[tokio::test]
    async fn an_object_in_a_folder_is_noticed_once() {
        let root = tempfile::tempdir().unwrap();
        let store = FileStore::open(root.path(), false).await.unwrap();
        let mut hints = Hints::new("log/");
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
    async fn a_folder_that_is_removed_and_made_again_is_watched_again() {
        let root = tempfile::tempdir().unwrap();
        let store = FileStore::open(root.path(), false).await.unwrap();
        put(&store, "log/0.json").await;
        let mut hints = Hints::new("log/");
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
        let mut hints = Hints::new("log/");
        assert!(timeout(LONG, hints.changed(store.as_ref())).await.is_err());
        assert!(hints.off);
    }
}
