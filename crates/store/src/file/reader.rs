//! Ranged reads of a file, chunk by chunk.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{CHUNK_BYTES, Folder, blocking};
use crate::{Effect, Op, StoreError};

/// A ranged read in progress.
pub(super) struct Reader {
    pub(super) folder: Arc<Folder>,
    pub(super) key: String,
    pub(super) file: Arc<File>,
    pub(super) left: Range<u64>,
}

impl Reader {
    /// Returns the next chunk and the rest of the read; `None` at the end of the range.
    pub(super) async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        blocking(move || {
            let length = (self.left.end - self.left.start).min(CHUNK_BYTES);
            let mut chunk = BytesMut::zeroed(length as usize);
            self.file
                .read_exact_at(&mut chunk, self.left.start)
                .map_err(|e| self.folder.io(Op::GetRange, &self.key, &e, Effect::DidNot))?;
            self.left.start += length;
            Ok(Some((chunk.freeze(), self)))
        })
        .await
    }
}
