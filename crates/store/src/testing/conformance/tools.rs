//! Helpers of the checks: clear panics, whole listings, bodies from a seed.

use std::ops::Range;

use bytes::Bytes;

use crate::{FileRange, Pages, Store, StoreError};

pub(super) fn ok<T>(what: &str, key: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} {key}: {error}"))
}

/// Returns every key below a prefix, sorted; panics when one is listed twice.
pub(super) async fn all(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut pages = Pages::new(store, prefix);
    while let Some(objects) = ok("list", prefix, pages.next().await) {
        assert!(objects.len() <= 1000, "a page of {} objects", objects.len());
        keys.extend(objects.into_iter().map(|object| object.key));
    }
    keys.sort();
    let listed = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), listed, "keys were listed twice below {prefix}");
    keys
}

/// Returns pseudo-random bytes that depend only on the seed.
pub(super) fn noise(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}

/// Reads a range into buffers of an odd size.
pub(super) async fn opened(
    store: &dyn Store,
    key: &str,
    range: Range<u64>,
) -> Result<Vec<u8>, StoreError> {
    let mut body = store.open_range(key, range.clone(), false).await?;
    let file = body.file().map(|file| by_file(&file, range)).transpose()?;
    let (mut all, mut some) = (Vec::new(), vec![0; 100_003]);
    loop {
        match body.read(&mut some).await? {
            0 => break,
            count => all.extend_from_slice(&some[..count]),
        }
    }
    assert!(file.is_none_or(|bytes| bytes == all), "{key} as a file");
    Ok(all)
}

fn by_file(file: &FileRange, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
    let (mut all, mut some) = (Vec::new(), vec![0; 100_003]);
    loop {
        match file.read_at(range.start + all.len() as u64, &mut some)? {
            0 => return Ok(all),
            count => all.extend_from_slice(&some[..count]),
        }
    }
}
