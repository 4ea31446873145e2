//! Counts requests and bytes around any store: for metrics, requests per step, read amplification.
//!
//! A count is a call of the contract: retries, parts and resumed reads inside the S3 store are not
//! counted apart. Bytes read are counted as they arrive, so a dropped stream counts what it got.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::{Chunks, Create, ListPage, ObjectMeta, Op, Store, StoreError};

/// The operations that are counted, in order of their slots.
const OPS: [Op; 7] = [
    Op::Create,
    Op::Upload,
    Op::Get,
    Op::GetRange,
    Op::Head,
    Op::List,
    Op::Delete,
];

/// Totals of one operation since the store was wrapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpCount {
    /// Calls made.
    pub requests: u64,
    /// Calls that failed, and streams that ended with an error.
    pub errors: u64,
    /// Body bytes sent or received.
    pub bytes: u64,
}

/// What all operations have counted at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([OpCount; OPS.len()]);

impl Counts {
    /// The totals of one operation; zero for `Op::Open`.
    pub fn of(&self, op: Op) -> OpCount {
        slot(op).map(|at| self.0[at]).unwrap_or_default()
    }

    /// Each operation with its totals.
    pub fn iter(&self) -> impl Iterator<Item = (Op, OpCount)> {
        OPS.into_iter().zip(self.0)
    }

    /// Calls of all operations.
    pub fn requests(&self) -> u64 {
        self.0.iter().map(|count| count.requests).sum()
    }

    /// Body bytes received by `get` and `get_range`.
    pub fn bytes_read(&self) -> u64 {
        self.of(Op::Get).bytes + self.of(Op::GetRange).bytes
    }

    /// Body bytes sent by `create` and `upload`.
    pub fn bytes_written(&self) -> u64 {
        self.of(Op::Create).bytes + self.of(Op::Upload).bytes
    }
}

fn slot(op: Op) -> Option<usize> {
    OPS.iter().position(|counted| *counted == op)
}

#[derive(Debug, Default)]
struct Cell {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

/// A store that counts.
#[derive(Debug, Clone)]
pub struct Counted {
    inner: Arc<dyn Store>,
    cells: Arc<[Cell; OPS.len()]>,
}

impl Counted {
    /// Wraps a store; clones share their counters.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            cells: Arc::default(),
        }
    }

    /// The totals now.
    pub fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|at| {
            let cell = &self.cells[at];
            OpCount {
                requests: cell.requests.load(Relaxed),
                errors: cell.errors.load(Relaxed),
                bytes: cell.bytes.load(Relaxed),
            }
        }))
    }

    async fn count<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.add(op, |cell| &cell.requests, 1);
        let result = call.await;
        if result.is_err() {
            self.add(op, |cell| &cell.errors, 1);
        }
        result
    }

    fn add(&self, op: Op, field: impl Fn(&Cell) -> &AtomicU64, amount: u64) {
        if let Some(at) = slot(op) {
            field(&self.cells[at]).fetch_add(amount, Relaxed);
        }
    }
}

#[async_trait]
impl Store for Counted {
    fn root(&self) -> &str {
        self.inner.root()
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.add(Op::Create, |cell| &cell.bytes, body.len() as u64);
        self.count(Op::Create, self.inner.create(key, body)).await
    }

    async fn upload(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.add(Op::Upload, |cell| &cell.bytes, body.len() as u64);
        self.count(Op::Upload, self.inner.upload(key, body)).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        let body = self.count(Op::Get, self.inner.get(key)).await?;
        self.add(Op::Get, |cell| &cell.bytes, body.len() as u64);
        Ok(body)
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let chunks = self
            .count(Op::GetRange, self.inner.get_range(key, range))
            .await?;
        let counted = self.clone();
        let watch = move |chunk: &Result<Bytes, StoreError>| match chunk {
            Ok(chunk) => counted.add(Op::GetRange, |cell| &cell.bytes, chunk.len() as u64),
            Err(_) => counted.add(Op::GetRange, |cell| &cell.errors, 1),
        };
        Ok(chunks.inspect(watch).boxed())
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.count(Op::Head, self.inner.head(key)).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.count(Op::List, self.inner.list(prefix, page)).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.count(Op::Delete, self.inner.delete(key)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn requests_errors_and_bytes() {
        let store = Counted::new(MemoryStore::new());
        let _ = store
            .create("a", Bytes::from_static(b"12345"))
            .await
            .unwrap();
        store.get("a").await.unwrap();
        store.get("b").await.unwrap_err();
        let chunks = store.clone().get_range("a", 1..4).await.unwrap();
        chunks.collect::<Vec<_>>().await;
        let counts = store.counts();
        let expect = |requests, errors, bytes| OpCount {
            requests,
            errors,
            bytes,
        };
        assert_eq!(counts.of(Op::Create), expect(1, 0, 5));
        assert_eq!(counts.of(Op::Get), expect(2, 1, 5));
        assert_eq!(counts.of(Op::GetRange), expect(1, 0, 3));
        assert_eq!(
            (
                counts.requests(),
                counts.bytes_read(),
                counts.bytes_written()
            ),
            (4, 8, 5)
        );
    }
}
