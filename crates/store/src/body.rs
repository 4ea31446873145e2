//! A range whose bytes are read straight into the caller's memory, without a buffer in between.

use std::ops::Range;

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use futures::TryStreamExt;

use crate::{Chunks, FileRange, Store, StoreError};

/// The bytes of a range in order, exactly as many as requested: a body that ends early is an error.
#[async_trait]
pub trait Body: Send {
    /// Reads at least one byte and at most `into.len()`, waiting if none has arrived. Returns 0 only at
    /// the range's end, or when `into` is empty.
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError>;

    /// Returns the rest of the range as a part of a local file, if it is one. A caller with a thread for
    /// blocking work reads it there, without the copy and the change of threads of each `read`.
    fn file(&self) -> Option<FileRange> {
        None
    }
}

/// Reads a whole range into memory; with `fresh` over a new connection, as [`Store::get_fresh`].
pub async fn read_range(
    store: &dyn Store,
    key: &str,
    range: Range<u64>,
    fresh: bool,
) -> Result<Bytes, StoreError> {
    let mut bytes = BytesMut::zeroed((range.end - range.start) as usize);
    let mut body = store.open_range(key, range, fresh).await?;
    let mut filled = 0;
    while filled < bytes.len() {
        match body.read(&mut bytes[filled..]).await? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes.freeze())
}

/// A body copied from chunks, for stores without direct reads.
pub(crate) struct Copied {
    chunks: Chunks,
    rest: Bytes,
}

impl Copied {
    /// Waits for the first chunk.
    pub(crate) async fn new(mut chunks: Chunks) -> Result<Self, StoreError> {
        let rest = chunks.try_next().await?.unwrap_or_default();
        Ok(Self { chunks, rest })
    }
}

#[async_trait]
impl Body for Copied {
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        while self.rest.is_empty() {
            match self.chunks.try_next().await? {
                Some(chunk) => self.rest = chunk,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}
