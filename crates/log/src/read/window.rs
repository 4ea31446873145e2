//! Reads many records in one round of parallel requests, bounded in bytes.

use std::collections::BTreeMap;

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::limits::{CATCH_UP_BYTES, CATCH_UP_WINDOW};
use batchweave_store::{Store, StoreError, found};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::FuturesUnordered;

use crate::error::LogError;

/// Sizes of the window after the first.
const NEXT: [u64; 3] = [24, 96, CATCH_UP_WINDOW];
/// Concurrent probes for the head, each twice as far ahead as the one before.
const PROBES: u32 = 4;

/// The result of one round of reads.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The records up to the first missing one.
    pub(crate) records: Vec<Bytes>,
    /// Versions that were read: fewer than requested when the records are large.
    pub(crate) read: u64,
}

impl Window {
    /// Whether more records may follow.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() as u64 == self.read
    }

    /// The size of the next window, after a full one.
    pub(crate) fn next(&self) -> u64 {
        let largest = self.records.iter().map(|r| r.len() as u64).max();
        let fit = CATCH_UP_BYTES / largest.unwrap_or(1).max(1);
        (self.read * 4).min(fit).clamp(1, CATCH_UP_WINDOW)
    }
}

/// Reads the records from `first` on: at most `count`, all at once (256 at most, by `CATCH_UP_WINDOW`), and at
/// most `CATCH_UP_BYTES` of them.
pub(crate) async fn read(
    store: &dyn Store,
    first: Version,
    count: u64,
) -> Result<Window, LogError> {
    let found = read_bounded(store, first, count).await?;
    let read = found.len() as u64;
    let records = without_gap(store, found).await?;
    Ok(Window { records, read })
}

/// Reads each version from `first` on. Records beyond the bound in bytes are dropped, the furthest first, and
/// versions after them are not waited for.
async fn read_bounded(
    store: &dyn Store,
    first: Version,
    count: u64,
) -> Result<BTreeMap<Version, Option<Bytes>>, StoreError> {
    let get = |version| async move { (version, get_record(store, version).await) };
    let mut reads: FuturesUnordered<_> = (first..first + count).map(get).collect();
    let (mut found, mut end, mut held) = (BTreeMap::new(), first + count, 0);
    while (found.len() as u64) < end - first
        && let Some((version, record)) = reads.next().await
    {
        if version >= end {
            continue;
        }
        let record = record?;
        held += bytes(record.as_ref());
        found.insert(version, record);
        while held > CATCH_UP_BYTES
            && found.len() > 1
            && let Some((version, dropped)) = found.pop_last()
        {
            (end, held) = (version, held - bytes(dropped.as_ref()));
        }
    }
    Ok(found)
}

fn bytes(record: Option<&Bytes>) -> u64 {
    record.map_or(0, |record| record.len() as u64)
}

async fn without_gap(
    store: &dyn Store,
    records: BTreeMap<Version, Option<Bytes>>,
) -> Result<Vec<Bytes>, LogError> {
    let mut found = Vec::new();
    let mut missing = None;
    for (version, record) in records {
        match (record, missing) {
            (Some(bytes), None) => found.push(bytes),
            (None, None) => missing = Some(version),
            (Some(_), Some(hole)) => {
                // It may have been written while the window was read.
                match get_record(store, hole).await? {
                    Some(_) => break,
                    None => return Err(gap(store, hole, version)),
                }
            }
            (None, Some(_)) => {}
        }
    }
    Ok(found)
}

fn gap(store: &dyn Store, hole: Version, later: Version) -> LogError {
    LogError::Gap {
        root: store.root().to_owned(),
        key: keys::log(hole),
        later,
    }
}

/// Reads the records from `first` on, and returns the size of the next window. It follows from probes further
/// ahead, so that hundreds of readers that open at once read few missing records.
pub(crate) async fn first(
    store: &dyn Store,
    first: Version,
    window: u64,
) -> Result<(Window, u64), LogError> {
    let [small, middle, large] = NEXT;
    let probe = |ahead| get_record(store, first + window + ahead);
    let (records, near, far) =
        futures::join!(read(store, first, window), probe(small), probe(middle));
    // One more than there can be: a full window does not show the head.
    let next = match (near?, far?) {
        (_, Some(_)) => large,
        (Some(_), None) => middle + 1,
        (None, None) => small + 1,
    };
    Ok((records?, next))
}

/// Returns a version after `first` that does not exist yet, at most about twice as far ahead as the head: a reader
/// that reaches it has read all records that existed before.
pub(crate) async fn absent_after(store: &dyn Store, first: Version) -> Result<Version, StoreError> {
    let mut ahead = CATCH_UP_WINDOW;
    loop {
        let probes = (0..PROBES).map(|n| first + (ahead << n));
        let found = try_join_all(probes.clone().map(|v| get_record(store, v))).await?;
        let absent = probes.zip(found).find(|(_, record)| record.is_none());
        if let Some((version, _)) = absent {
            return Ok(version);
        }
        ahead <<= PROBES;
    }
}

/// Reads a record; `None` when it does not exist.
pub(crate) async fn get_record(
    store: &dyn Store,
    version: Version,
) -> Result<Option<Bytes>, StoreError> {
    let key = keys::log(version);
    found(store.get(&key, keys::bytes_max(&key)).await)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batchweave_store::memory::MemoryStore;

    use super::*;

    async fn holding(sizes: impl IntoIterator<Item = usize>) -> Arc<MemoryStore> {
        let store = MemoryStore::new();
        for (version, size) in (0..).zip(sizes) {
            let body = Bytes::from(vec![version as u8; size]);
            let _ = store.create(&keys::log(version), body).await.unwrap();
        }
        store
    }

    fn held(window: &Window) -> u64 {
        window.records.iter().map(|r| r.len() as u64).sum()
    }

    #[tokio::test]
    async fn a_window_is_bounded_in_bytes_and_the_next_one_is_as_large_as_fits() {
        let store =
            holding((0..100).map(|version| if version < 30 { 1000 } else { 1 << 20 })).await;
        let (mut next, mut count, mut sizes) = (0, 4, Vec::new());
        while next < 100 {
            let found = read(store.as_ref(), next, count.min(100 - next))
                .await
                .unwrap();
            assert!(found.is_full() && held(&found) <= CATCH_UP_BYTES);
            assert!((next..).zip(&found.records).all(|(v, r)| r[0] == v as u8));
            sizes.push(found.read);
            (next, count) = (next + found.read, found.next());
        }
        assert_eq!(sizes, [4, 16, 25, 16, 16, 16, 7]);
    }

    #[tokio::test]
    async fn the_head_is_seen_in_a_window_that_was_cut_short() {
        let large = CATCH_UP_BYTES as usize / 4;
        let store = holding([large, large, large, large, large, 10]).await;
        let found = read(store.as_ref(), 0, 8).await.unwrap();
        assert_eq!((found.records.len(), found.read, found.next()), (4, 4, 4));
        let found = read(store.as_ref(), 4, 8).await.unwrap();
        assert_eq!((found.records.len(), found.read), (2, 8));
        assert!(!found.is_full());
    }
}
