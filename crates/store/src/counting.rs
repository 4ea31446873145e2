//! Counts requests and bytes of any store: for metrics, requests per commit and per step, read
//! amplification.
//!
//! The unit is a call of the contract: retries, parts and resumed reads inside the S3 store are not
//! counted separately. Bytes read are counted as they arrive, so a dropped stream counts partially.
//!
//! Each call is counted under one operation and one class, the first name of its key: `log/7.json` and
//! the listing of `log/` are of class `log`, `stream.json` is of class `stream`. A name outside the given
//! classes counts as [`OTHER`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::availability::Availability;
use crate::layer::{self, Call};
use crate::{Body, Chunks, FileRange, Inspect, Op, Store, StoreError};

/// The operations that are counted, in order of their slots.
const OPS: [Op; 7] = Op::CONTRACT;

/// The class of keys that belong to no given class.
pub const OTHER: &str = "other";

/// Totals of one operation since the store was wrapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpCount {
    pub requests: u64,
    /// Calls that failed, and streams that ended with an error. "Not found" is not an error: reading past
    /// the head of the log is how it is found.
    pub errors: u64,
    /// Body bytes sent or received.
    pub bytes: u64,
}

/// The totals of all operations at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([OpCount; OPS.len()]);

impl Counts {
    /// Returns the totals of one operation; zero for `Op::Open`.
    pub fn of(&self, op: Op) -> OpCount {
        slot(op).map(|at| self.0[at]).unwrap_or_default()
    }

    /// Iterates over the operations with their totals.
    pub fn iter(&self) -> impl Iterator<Item = (Op, OpCount)> {
        OPS.into_iter().zip(self.0)
    }

    /// Returns the difference to `earlier` counts of the same store.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| {
            let (now, then) = (self.0[at], earlier.0[at]);
            OpCount {
                requests: now.requests.saturating_sub(then.requests),
                errors: now.errors.saturating_sub(then.errors),
                bytes: now.bytes.saturating_sub(then.bytes),
            }
        }))
    }

    /// Returns the number of calls of all operations.
    pub fn requests(&self) -> u64 {
        self.0.iter().map(|count| count.requests).sum()
    }

    /// Returns the body bytes received by `get` and `get_range`.
    pub fn bytes_read(&self) -> u64 {
        self.of(Op::Get).bytes + self.of(Op::GetRange).bytes
    }

    /// Returns the body bytes sent by `create` and `upload`.
    pub fn bytes_written(&self) -> u64 {
        self.of(Op::Create).bytes + self.of(Op::Upload).bytes
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| {
            let (a, b) = (self.0[at], other.0[at]);
            OpCount {
                requests: a.requests + b.requests,
                errors: a.errors + b.errors,
                bytes: a.bytes + b.bytes,
            }
        }))
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

type Row = [Cell; OPS.len()];

/// A store that counts.
#[derive(Debug, Clone)]
pub struct Counted {
    inner: Arc<dyn Store>,
    classes: &'static [&'static str],
    /// One row per class, and one for other keys.
    rows: Arc<[Row]>,
    availability: Arc<Availability>,
}

impl Counted {
    /// Wraps a store without classes. Clones share their counters.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self::with_classes(inner, &[])
    }

    /// Wraps a store and counts `classes` of keys separately.
    pub fn with_classes(inner: Arc<dyn Store>, classes: &'static [&'static str]) -> Self {
        let rows = (0..=classes.len()).map(|_| Row::default()).collect();
        Self {
            inner,
            classes,
            rows,
            availability: Arc::default(),
        }
    }

    /// Returns the current totals.
    pub fn counts(&self) -> Counts {
        self.by_class()
            .into_iter()
            .fold(Counts::default(), |sum, (_, counts)| sum + counts)
    }

    /// Returns the current totals of each class, [`OTHER`] last.
    pub fn by_class(&self) -> Vec<(&'static str, Counts)> {
        let names = self.classes.iter().copied().chain([OTHER]);
        names.zip(self.rows.iter().map(read)).collect()
    }

    /// Returns the last failed read, until the store answers again.
    pub fn failing(&self) -> Option<String> {
        self.availability.failure()
    }

    fn row(&self, key: &str) -> usize {
        let class = key.split(['/', '.']).next().unwrap_or_default();
        let known = self.classes.iter().position(|known| *known == class);
        known.unwrap_or(self.classes.len())
    }

    async fn count<T>(
        &self,
        op: Op,
        key: &str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let row = self.row(key);
        self.add(row, op, |cell| &cell.requests, 1);
        let result = call.await;
        self.availability.note(op, &result);
        if result.as_ref().is_err_and(|why| !why.is_not_found()) {
            self.add(row, op, |cell| &cell.errors, 1);
        }
        result
    }

    async fn whole(
        &self,
        key: &str,
        call: impl Future<Output = Result<Bytes, StoreError>>,
    ) -> Result<Bytes, StoreError> {
        let body = self.count(Op::Get, key, call).await?;
        self.add_bytes(key, Op::Get, body.len());
        Ok(body)
    }

    fn add(&self, row: usize, op: Op, field: impl Fn(&Cell) -> &AtomicU64, amount: u64) {
        if let (Some(row), Some(at)) = (self.rows.get(row), slot(op)) {
            field(&row[at]).fetch_add(amount, Relaxed);
        }
    }

    fn add_bytes(&self, key: &str, op: Op, bytes: usize) {
        self.add(self.row(key), op, |cell| &cell.bytes, bytes as u64);
    }
}

struct CountedBody {
    inner: Box<dyn Body>,
    counted: Counted,
    row: usize,
}

#[async_trait]
impl Body for CountedBody {
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        let read = self.inner.read(into).await;
        let (counted, row) = (&self.counted, self.row);
        match &read {
            Ok(count) => counted.add(row, Op::GetRange, |cell| &cell.bytes, *count as u64),
            Err(_) => counted.add(row, Op::GetRange, |cell| &cell.errors, 1),
        }
        read
    }

    /// Counts all bytes at once: a caller reads them without this body.
    fn file(&self) -> Option<FileRange> {
        let file = self.inner.file()?;
        self.counted
            .add(self.row, Op::GetRange, |cell| &cell.bytes, file.bytes());
        Some(file)
    }
}

fn read(row: &Row) -> Counts {
    Counts(std::array::from_fn(|at| OpCount {
        requests: row[at].requests.load(Relaxed),
        errors: row[at].errors.load(Relaxed),
        bytes: row[at].bytes.load(Relaxed),
    }))
}

#[async_trait]
impl layer::Intercept for Counted {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        self.add_bytes(call.key, call.op, call.bytes);
        self.count(call.op, call.key, run).await
    }

    async fn get(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.whole(key, self.inner.get(key, at_most)).await
    }

    async fn get_fresh(&self, key: &str, at_most: u64) -> Result<Bytes, StoreError> {
        self.whole(key, self.inner.get_fresh(key, at_most)).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        let call = self.inner.get_range(key, range);
        let chunks = self.count(Op::GetRange, key, call).await?;
        let (counted, row) = (self.clone(), self.row(key));
        let watch = move |chunk: &Result<Bytes, StoreError>| match chunk {
            Ok(chunk) => counted.add(row, Op::GetRange, |cell| &cell.bytes, chunk.len() as u64),
            Err(_) => counted.add(row, Op::GetRange, |cell| &cell.errors, 1),
        };
        Ok(chunks.inspect(watch).boxed())
    }

    /// Counted like any ranged read.
    async fn open_range(
        &self,
        key: &str,
        range: Range<u64>,
        fresh: bool,
    ) -> Result<Box<dyn Body>, StoreError> {
        let call = self.inner.open_range(key, range, fresh);
        let inner = self.count(Op::GetRange, key, call).await?;
        let (counted, row) = (self.clone(), self.row(key));
        Ok(Box::new(CountedBody {
            inner,
            counted,
            row,
        }))
    }

    /// One request for all keys, of the class of the first; each refused key is an error.
    async fn delete_many(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let first = keys.first().map_or("", String::as_str);
        let call = self.inner.delete_many(keys);
        let refused = self.count(Op::Delete, first, call).await?;
        let row = self.row(first);
        self.add(row, Op::Delete, |cell| &cell.errors, refused.len() as u64);
        Ok(refused)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.inner.inspect()
    }
}

#[cfg(test)]
mod tests;
