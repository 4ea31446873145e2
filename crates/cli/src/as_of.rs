//! A read-only view of a store in which the log ends before a given version: the past of a stream,
//! read with the code that reads its present.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_store::{
    Chunks, Create, Effect, ErrorKind, ListPage, ObjectMeta, Op, Store, StoreError,
};
use bytes::Bytes;

/// Hides records and snapshots from version `end` on.
#[derive(Debug)]
pub(crate) struct AsOf {
    inner: Arc<dyn Store>,
    end: AtomicU64,
}

impl AsOf {
    pub(crate) fn new(inner: Arc<dyn Store>, end: Version) -> Arc<Self> {
        let end = AtomicU64::new(end);
        Arc::new(Self { inner, end })
    }

    /// Shows the log up to, not including, `end` from now on.
    pub(crate) fn show_until(&self, end: Version) {
        self.end.store(end, Ordering::Relaxed);
    }

    fn check(&self, op: Op, key: &str) -> Result<(), StoreError> {
        if self.hides(key) {
            return Err(self.error(op, key, ErrorKind::NotFound, "later than what is looked at"));
        }
        Ok(())
    }

    fn hides(&self, key: &str) -> bool {
        let version = log_version(key).or_else(|| keys::snapshot_version(key));
        version.is_some_and(|v| v >= self.end.load(Ordering::Relaxed))
    }

    fn read_only(&self, op: Op, key: &str) -> StoreError {
        self.error(
            op,
            key,
            ErrorKind::Denied,
            "a view of the past is read-only",
        )
    }

    fn error(&self, op: Op, key: &str, kind: ErrorKind, detail: &str) -> StoreError {
        let location = format!("{}/{key}", self.inner.root());
        StoreError::new(op, location, kind, Effect::DidNot, detail)
    }
}

fn log_version(key: &str) -> Option<Version> {
    let digits = key.strip_prefix(keys::LOG)?.strip_suffix(".json")?;
    digits.parse().ok()
}

#[async_trait]
impl Store for AsOf {
    fn root(&self) -> &str {
        self.inner.root()
    }

    async fn create(&self, key: &str, _body: Bytes) -> Result<Create, StoreError> {
        Err(self.read_only(Op::Create, key))
    }

    async fn upload(&self, key: &str, _body: Bytes) -> Result<Create, StoreError> {
        Err(self.read_only(Op::Upload, key))
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.check(Op::Get, key)?;
        self.inner.get(key, at_most).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.check(Op::Get, key)?;
        self.inner.get_fresh(key, at_most).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.check(Op::GetRange, key)?;
        self.inner.get_range(key, range).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.check(Op::Head, key)?;
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        let mut listed = self.inner.list(prefix, page).await?;
        listed.objects.retain(|object| !self.hides(&object.key));
        Ok(listed)
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        Err(self.read_only(Op::Delete, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchweave_store::memory::MemoryStore;

    #[tokio::test]
    async fn what_is_later_is_hidden_until_shown() {
        let inner: Arc<dyn Store> = MemoryStore::new();
        for key in [keys::log(6), keys::log(7), keys::snapshot(7)] {
            let _ = inner.create(&key, "x".into()).await.unwrap();
        }
        let view = AsOf::new(inner, 7);
        assert!(view.get(&keys::log(6), u64::MAX).await.is_ok());
        assert!(
            view.get(&keys::log(7), u64::MAX)
                .await
                .unwrap_err()
                .is_not_found()
        );
        assert!(
            view.list(keys::SNAPSHOTS, None)
                .await
                .unwrap()
                .objects
                .is_empty()
        );
        view.show_until(8);
        assert!(view.get(&keys::log(7), u64::MAX).await.is_ok());
        assert_eq!(
            view.list(keys::SNAPSHOTS, None)
                .await
                .unwrap()
                .objects
                .len(),
            1
        );
        assert_eq!(
            view.delete("log/x").await.unwrap_err().kind,
            ErrorKind::Denied
        );
    }
}
