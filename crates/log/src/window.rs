//! Reading many records in one round of parallel requests.

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::limits::CATCH_UP_WINDOW;
use batchweave_store::{Store, StoreError};
use bytes::Bytes;
use futures::future::try_join_all;

use crate::LogError;

/// Sizes of the window after the first.
const NEXT: [u64; 3] = [24, 96, CATCH_UP_WINDOW];
/// Looks at once, each twice as far ahead, by one who is far behind.
const PROBES: u32 = 4;

/// The records from `first` on, as far as they are there without a gap; at most `count`, all asked
/// for at once (256 at most, by `CATCH_UP_WINDOW`).
pub(crate) async fn read(
    store: &dyn Store,
    first: Version,
    count: u64,
) -> Result<Vec<Bytes>, LogError> {
    let records = try_join_all((first..first + count).map(|v| get_record(store, v))).await?;
    let mut found = Vec::new();
    let mut missing = None;
    for (version, record) in (first..).zip(records) {
        match (record, missing) {
            (Some(bytes), None) => found.push(bytes),
            (None, None) => missing = Some(version),
            (Some(_), Some(hole)) => {
                // Written while the window was read? Then it is there now.
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

/// The first records from `first` on, and how many to ask for after them: looks further ahead tell,
/// where hundreds open at once, whom a small window serves.
pub(crate) async fn first(
    store: &dyn Store,
    first: Version,
    window: u64,
) -> Result<(Vec<Bytes>, u64), LogError> {
    let [small, middle, large] = NEXT;
    let probe = |ahead| get_record(store, first + window + ahead);
    let (records, near, far) =
        futures::join!(read(store, first, window), probe(small), probe(middle));
    // One more than there can be, or a full window would hide the head.
    let next = match (near?, far?) {
        (_, Some(_)) => large,
        (Some(_), None) => middle + 1,
        (None, None) => small + 1,
    };
    Ok((records?, next))
}

/// Some version after `first` that is not there yet, at most about twice as far ahead as the head:
/// who reads up to it has read what there was before.
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

/// Reads a record, `None` when it is not there.
pub(crate) async fn get_record(
    store: &dyn Store,
    version: Version,
) -> Result<Option<Bytes>, StoreError> {
    let key = keys::log(version);
    match store.get(&key, keys::bytes_max(&key)).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}
