//! A range whose bytes are read to where they are needed, with no buffer in between.

use std::ops::Range;

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use futures::TryStreamExt;

use crate::{Chunks, Store, StoreError};

/// The bytes of a range in order. Neither fewer nor more of them come than were asked for: a body that
/// ends early is an error.
#[async_trait]
pub trait Body: Send {
    /// Reads what has come, or waits for it: at least one byte, at most as many as `into` holds. 0 only
    /// behind the range's last byte, or when `into` is empty.
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError>;
}

/// Reads a range whole; `fresh` over a connection of its own, as [`Store::get_fresh`].
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

/// Chunks that are copied: for stores that have no shorter way.
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
