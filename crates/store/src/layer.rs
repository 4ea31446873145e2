//! Stores that wrap another store: an [`Intercept`] states only how it differs.

use std::fmt::Debug;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use crate::body::Copied;
use crate::{
    Body, Chunks, Create, Inspect, ListPage, ObjectMeta, Op, PendingUpload, Store, StoreError,
    Watch,
};

/// One call of the contract on its way to the wrapped store.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub op: Op,
    /// The key or, for a listing, the prefix.
    pub key: &'a str,
    /// Body bytes sent; zero for all but `create` and `upload`.
    pub bytes: usize,
}

impl<'a> Call<'a> {
    fn new(op: Op, key: &'a str) -> Self {
        let bytes = 0;
        Self { op, key, bytes }
    }

    fn sending(op: Op, key: &'a str, body: &Bytes) -> Self {
        let bytes = body.len();
        Self { op, key, bytes }
    }
}

/// A wrapper around a store. Every method passes its call on through [`Intercept::around`].
///
/// `get_fresh`, `open_range` and `delete_many` are built on the wrapper's own `get`, `get_range` and
/// `delete`, so that an intercept of those sees every read and every deletion; a wrapper that wants
/// the inner store's own versions overrides them. Import this trait only where it is implemented:
/// its methods have the names of [`Store`]'s.
#[async_trait]
pub trait Intercept: Send + Sync + Debug + 'static {
    /// Returns the wrapped store.
    fn inner(&self) -> &dyn Store;

    /// Runs `run`, the call to the wrapped store. A wrapper may wait, fail before or after it, or
    /// not run it.
    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let _ = call;
        run.await
    }

    /// Intercepts [`Store::root`] in messages.
    fn root(&self) -> &str {
        self.inner().root()
    }

    /// Intercepts [`Store::create`] of a record.
    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let call = Call::sending(Op::Create, key, &body);
        self.around(call, self.inner().create(key, body)).await
    }

    /// Intercepts [`Store::upload`] of a data object.
    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        let call = Call::sending(Op::Upload, key, &body);
        self.around(call, self.inner().upload(key, body)).await
    }

    /// Intercepts [`Store::get`], a whole read.
    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        let call = Call::new(Op::Get, key);
        self.around(call, self.inner().get(key, at_most)).await
    }

    /// Intercepts [`Store::get_fresh`], a whole read over a new connection.
    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.get(key, at_most).await
    }

    /// Intercepts [`Store::get_range`], a ranged read.
    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let call = Call::new(Op::GetRange, key);
        self.around(call, self.inner().get_range(key, range)).await
    }

    /// Intercepts [`Store::open_range`], a large ranged read.
    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        let _ = fresh;
        let chunks = self.get_range(key, range).await?;
        Ok(Box::new(Copied::new(chunks).await?))
    }

    /// Intercepts [`Store::head`], a metadata read.
    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let call = Call::new(Op::Head, key);
        self.around(call, self.inner().head(key)).await
    }

    /// Intercepts [`Store::list`] of one page.
    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        let call = Call::new(Op::List, prefix);
        self.around(call, self.inner().list(prefix, page)).await
    }

    /// Intercepts [`Store::list_after`]; passes through `around` as a listing.
    async fn list_after(&self, prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        let call = Call::new(Op::List, prefix);
        self.around(call, self.inner().list_after(prefix, after))
            .await
    }

    /// Intercepts [`Store::folders`]; passes through `around` as a listing.
    async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let call = Call::new(Op::List, prefix);
        self.around(call, self.inner().folders(prefix)).await
    }

    /// Intercepts [`Store::delete`] of one object.
    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let call = Call::new(Op::Delete, key);
        self.around(call, self.inner().delete(key)).await
    }

    /// Intercepts [`Store::delete_many`], a bulk deletion.
    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let mut refused = Vec::new();
        for key in keys {
            if let Err(error) = self.delete(key).await {
                refused.push((key.clone(), error));
            }
        }
        Ok(refused)
    }

    /// Intercepts [`Store::unfinished`]; passes through `around` as a listing.
    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        let call = Call::new(Op::List, prefix);
        self.around(call, self.inner().unfinished(prefix)).await
    }

    /// Intercepts [`Store::abort`]; passes through `around` as a deletion.
    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        let call = Call::new(Op::Delete, &upload.key);
        self.around(call, self.inner().abort(upload)).await
    }

    /// Intercepts [`Store::watch`]; does not pass through `around`, because it makes no request.
    async fn watch(&self, prefix: &str) -> Result<Option<Watch>, StoreError> {
        self.inner().watch(prefix).await
    }

    /// Intercepts [`Store::inspect`]; hidden by default, because inspection would bypass the wrapper.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }
}

#[async_trait]
impl<I: Intercept> Store for I {
    fn root(&self) -> &str {
        Intercept::root(self)
    }

    fn key_bytes_max(&self) -> usize {
        self.inner().key_bytes_max()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        Intercept::create(self, key, body).await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        Intercept::upload(self, key, body).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        Intercept::get(self, key, at_most).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        Intercept::get_fresh(self, key, at_most).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        Intercept::get_range(self, key, range).await
    }

    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        Intercept::open_range(self, key, range, fresh).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        Intercept::head(self, key).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        Intercept::list(self, prefix, page).await
    }

    async fn list_after(&self, prefix: &str, after: &str) -> Result<ListPage, StoreError> {
        Intercept::list_after(self, prefix, after).await
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        Intercept::folders(self, prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        Intercept::delete(self, key).await
    }

    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        Intercept::delete_many(self, keys).await
    }

    async fn unfinished(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        Intercept::unfinished(self, prefix).await
    }

    async fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        Intercept::abort(self, upload).await
    }

    async fn watch(&self, prefix: &str) -> Result<Option<Watch>, StoreError> {
        Intercept::watch(self, prefix).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Intercept::inspect(self)
    }
}
