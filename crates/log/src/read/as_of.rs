//! A read-only view of a store in which the log ends before a given version: the past of a stream, readable
//! with the code that reads its present.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_store::layer::{Call, Intercept};
use batchweave_store::{Effect, ErrorKind, ListPage, Op, Store, StoreError};
use bytes::Bytes;

/// A store that hides records and snapshots from a version on, and refuses writes.
#[derive(Debug)]
pub struct AsOf {
    inner: Arc<dyn Store>,
    end: AtomicU64,
}

impl AsOf {
    /// Returns a view of `inner` whose log ends before version `end`.
    pub fn new(inner: Arc<dyn Store>, end: Version) -> Arc<Self> {
        let end = AtomicU64::new(end);
        Arc::new(Self { inner, end })
    }

    /// From now on, shows the log up to `end`, exclusive.
    pub fn show_until(&self, end: Version) {
        self.end.store(end, Ordering::Relaxed);
    }

    fn hides(&self, key: &str) -> bool {
        let version = keys::log_version(key).or_else(|| keys::snapshot_version(key));
        version.is_some_and(|v| v >= self.end.load(Ordering::Relaxed))
    }

    fn error(&self, op: Op, key: &str, kind: ErrorKind, detail: &str) -> StoreError {
        let location = format!("{}/{key}", self.inner.root());
        StoreError::new(op, location, kind, Effect::DidNot, detail)
    }
}

#[async_trait]
impl Intercept for AsOf {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let refused = |kind, detail| Err(self.error(call.op, call.key, kind, detail));
        match call.op {
            Op::Create | Op::Upload | Op::Delete => {
                refused(ErrorKind::Denied, "a view of the past is read-only")
            }
            Op::List => run.await,
            _ if self.hides(call.key) => {
                refused(ErrorKind::NotFound, "later than the version that is shown")
            }
            _ => run.await,
        }
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let (op, bytes) = (Op::Get, 0);
        let run = self.inner.get_fresh(key, at_most);
        self.around(Call { op, key, bytes }, run).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        let mut listed = self.inner.list(prefix, page).await?;
        listed.objects.retain(|object| !self.hides(&object.key));
        Ok(listed)
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
        let as_of = AsOf::new(inner, 7);
        let view: Arc<dyn Store> = Arc::clone(&as_of) as _;
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
        as_of.show_until(8);
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
