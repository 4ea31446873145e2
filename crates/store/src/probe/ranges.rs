//! Ranged reads return exactly their bytes, and refuse a range beyond the end.

use std::ops::Range;

use bytes::Bytes;
use futures::TryStreamExt;

use crate::{ErrorKind, Store, StoreError};

const BYTES: usize = 256 * 1024;
/// One byte at each end, the whole, some in the middle, and the first of the second half.
const RANGES: [Range<usize>; 5] = [
    0..1,
    0..BYTES,
    BYTES - 1..BYTES,
    1000..70_000,
    131_072..131_073,
];

/// Uploads an object under `key`, reads ranges of it and deletes it. Returns the fault of a ranged read, if there is any.
pub async fn probe_ranges(store: &dyn Store, key: &str) -> Result<Option<String>, StoreError> {
    let fault = read_ranges(store, key).await;
    let _ = store.delete(key).await;
    fault
}

async fn read_ranges(store: &dyn Store, key: &str) -> Result<Option<String>, StoreError> {
    let body: Bytes = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let _ = store.upload(key, body.clone()).await?;
    for Range { start, end } in RANGES {
        let read = store.get_range(key, start as u64..end as u64).await?;
        let chunks: Vec<Bytes> = read.try_collect().await?;
        if chunks.concat() != body[start..end] {
            let fault = format!("bytes {start}..{end} of {BYTES} came back with other contents");
            return Ok(Some(fault));
        }
    }
    let end = BYTES as u64;
    let beyond = store.get_range(key, end - 1..end + 1).await;
    match beyond.map(drop) {
        Err(error) if error.kind == ErrorKind::Range => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(Some("a range beyond the end was not refused".to_owned())),
    }
}
