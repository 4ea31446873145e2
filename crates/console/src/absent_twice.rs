//! A store for commands that read once: an object counts as absent when two reads say so. A daemon reads again later; a
//! command that takes the older version of a key, none, for the present one would report what is not so.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use batchweave_store::{Body, Chunks, Inspect, Store, StoreError, layer};
use bytes::Bytes;

#[derive(Debug)]
pub(crate) struct AbsentTwice(pub(crate) Arc<dyn Store>);

fn is_absent<T>(read: &Result<T, StoreError>) -> bool {
    matches!(read, Err(why) if why.is_not_found())
}

/// Returns the second read; two answers are said.
fn second<T>(key: &str, read: Result<T, StoreError>) -> Result<T, StoreError> {
    if read.is_ok() {
        eprintln!(
            "warning: a read found no {key}, and the next one did: it was written in between, or the store returned an older \
             version"
        );
    }
    read
}

#[async_trait]
impl layer::Intercept for AbsentTwice {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let read = self.0.get(key, at_most).await;
        if is_absent(&read) {
            return second(key, self.0.get_fresh(key, at_most).await);
        }
        read
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.0.get_fresh(key, at_most).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let read = self.0.get_range(key, range.clone()).await;
        if is_absent(&read) {
            return second(key, self.0.get_range(key, range).await);
        }
        read
    }

    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        let read = self.0.open_range(key, range.clone(), fresh).await;
        if is_absent(&read) {
            return second(key, self.0.open_range(key, range, true).await);
        }
        read
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        self.0.delete_many(keys).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.0.inspect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use batchweave_store::memory::MemoryStore;

    use super::*;

    /// Answers the first read with the older version: the key is absent.
    #[derive(Debug)]
    struct Stale(Arc<MemoryStore>, AtomicU32);

    #[async_trait]
    impl layer::Intercept for Stale {
        fn inner(&self) -> &dyn Store {
            self.0.as_ref()
        }

        async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
            let first = self.1.fetch_add(1, Ordering::Relaxed) == 0;
            self.0.get(if first { "none" } else { key }, at_most).await
        }

        async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
            let first = self.1.fetch_add(1, Ordering::Relaxed) == 0;
            let key = if first { "none" } else { key };
            self.0.get_range(key, range).await
        }
    }

    fn stale() -> AbsentTwice {
        let memory = MemoryStore::new();
        memory.overwrite("log/1", Bytes::from_static(b"x"));
        AbsentTwice(Arc::new(Stale(memory, AtomicU32::new(0))))
    }

    #[tokio::test]
    async fn one_read_that_finds_nothing_is_repeated() {
        assert_eq!(Store::get(&stale(), "log/1", 9).await.unwrap(), "x");
        assert!(Store::get_range(&stale(), "log/1", 0..1).await.is_ok());
        let store = stale();
        assert!(
            Store::open_range(&store, "log/1", 0..1, false)
                .await
                .is_ok()
        );
        let absent = Store::get(&stale(), "log/2", 9).await.unwrap_err();
        assert!(absent.is_not_found(), "{absent}");
    }
}
