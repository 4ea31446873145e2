//! Ranged reads of a file: chunk by chunk, or by a caller that can block.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use super::{CHUNK_BYTES, Folder, blocking};
use crate::{Body, Effect, ErrorKind, Op, StoreError};

/// A range of a local file. Its reads block the thread.
#[derive(Debug, Clone)]
pub struct FileRange {
    folder: Arc<Folder>,
    key: String,
    file: Arc<File>,
    left: Range<u64>,
}

impl FileRange {
    /// Opens a range, which must be within the file.
    pub(super) fn open(
        folder: Arc<Folder>,
        key: String,
        range: Range<u64>,
    ) -> Result<Self, StoreError> {
        let (size, _) = folder.size(Op::GetRange, &key)?;
        if range.end > size {
            let detail = format!(
                "range {}..{} of an object of {size} bytes",
                range.start, range.end
            );
            let (kind, effect) = (ErrorKind::Range, Effect::DidNot);
            return Err(folder.error(Op::GetRange, &key, kind, effect, detail));
        }
        let file = Arc::new(folder.open_file(Op::GetRange, &key)?);
        let left = range;
        Ok(Self {
            folder,
            key,
            file,
            left,
        })
    }

    /// Reads at `at`, an offset in the object: at least one byte and at most `into.len()`. Returns 0 only at the
    /// range's end, or when `into` is empty.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let left = self.left.end.saturating_sub(at);
        let most = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        loop {
            match self.file.read_at(&mut into[..most], at) {
                Ok(0) => return Err(self.failed(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => return Ok(count),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(self.failed(&why)),
            }
        }
    }

    fn failed(&self, why: &io::Error) -> StoreError {
        self.folder.io(Op::GetRange, &self.key, why, Effect::DidNot)
    }

    /// Returns the bytes that are left.
    pub fn bytes(&self) -> u64 {
        self.left.end - self.left.start
    }

    /// Returns the next chunk and the rest of the read; `None` at the end of the range.
    pub(super) async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        blocking(move || {
            let length = self.bytes().min(CHUNK_BYTES);
            let mut chunk = BytesMut::zeroed(length as usize);
            self.file
                .read_exact_at(&mut chunk, self.left.start)
                .map_err(|why| self.failed(&why))?;
            self.left.start += length;
            Ok(Some((chunk.freeze(), self)))
        })
        .await
    }
}

#[async_trait]
impl Body for FileRange {
    async fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        let (range, most) = (self.clone(), into.len().min(CHUNK_BYTES as usize));
        let read = blocking(move || {
            let mut bytes = vec![0; most];
            let count = range.read_at(range.left.start, &mut bytes)?;
            bytes.truncate(count);
            Ok(bytes)
        });
        let bytes = read.await?;
        into[..bytes.len()].copy_from_slice(&bytes);
        self.left.start += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn file(&self) -> Option<FileRange> {
        Some(self.clone())
    }
}
