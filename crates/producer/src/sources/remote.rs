//! Reads the bytes of an input file, local or in a store, in a blocking thread. An object is read in ranges, of which
//! the next one is on its way while one is used; a range that fails for a transient reason is requested again. The
//! *pinned* size is the one that the producer's input list recorded.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_store::{Backoff, Store, StoreError};
use bytes::{Buf, Bytes};
use futures::TryStreamExt;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{InputFile, Location, local_file};

/// Bytes of an object per request; a reader holds two of them.
const RANGE_BYTES: u64 = 4 << 20;
/// Requests of this process that are made before their bytes are needed.
static AHEAD: Semaphore = Semaphore::const_new(32);
/// Bytes per read behind the range that a reader wants, where its last line usually ends.
const BEHIND_BYTES: u64 = 16 << 10;
/// Requests for a range before its read fails, and the pauses between them.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Returns the bytes of `file` from `offset` on. Must be called, and read, outside of async code.
pub(super) fn open(file: &InputFile, offset: u64) -> io::Result<Box<dyn Read + Send>> {
    match &file.location {
        Location::Local(path) => {
            let mut local = local_file::open(path)?;
            let size = local.metadata()?.len();
            if size != file.pin.size {
                return Err(changed(file.pin.size, size));
            }
            local.seek(SeekFrom::Start(offset))?;
            Ok(Box::new(LocalRead {
                left: size.saturating_sub(offset),
                size,
                file: local,
            }))
        }
        Location::Remote { .. } => Ok(Box::new(RemoteRead::new(
            RemoteObject::from_file(file)?,
            offset,
            None,
        ))),
    }
}

/// Returns the first bytes of `file`, at most `length`.
pub(super) fn head(file: &InputFile, length: u64) -> io::Result<Vec<u8>> {
    let length = length.min(file.pin.size);
    let mut head = Vec::new();
    match &file.location {
        Location::Local(_) => {
            open(file, 0)?.take(length).read_to_end(&mut head)?;
        }
        Location::Remote { .. } if length > 0 => {
            head.extend_from_slice(&RemoteObject::from_file(file)?.range(0..length)?);
        }
        Location::Remote { .. } => {}
    }
    Ok(head)
}

/// Returns the bytes of `file` from `from` on, for a reader that needs little beyond `soft_end`: that is read in small
/// steps. The first range of an object is requested at once, so that many can be on their way.
pub(super) fn open_range(
    file: &InputFile,
    from: u64,
    soft_end: u64,
) -> io::Result<Box<dyn Read + Send>> {
    if let Location::Local(_) = &file.location {
        return Ok(Box::new(Bordered {
            inner: open(file, from)?,
            left: soft_end.saturating_sub(from),
        }));
    }
    let object = RemoteObject::from_file(file)?;
    let mut read = RemoteRead::new(object, from, Some(soft_end.min(file.pin.size)));
    read.request();
    Ok(Box::new(read))
}

/// Returns the bytes of `file` from `from` on, for a reader of the lines that begin before `to`. Of an object they are
/// requested at once, up to the end of the last of these lines.
pub(super) fn open_lines(file: &InputFile, from: u64, to: u64) -> io::Result<Box<dyn Read + Send>> {
    if let Location::Local(_) = &file.location {
        return open_range(file, from, to);
    }
    let object = RemoteObject::from_file(file)?;
    let mut read = RemoteRead::new(object, from, Some(to));
    if to.saturating_sub(from) <= RANGE_BYTES {
        read.next = Some(read.object.request_lines(from..to));
    } else {
        read.request();
    }
    Ok(Box::new(read))
}

/// Never reads across the border after `left` bytes, and in small steps behind it.
struct Bordered {
    inner: Box<dyn Read + Send>,
    left: u64,
}

impl Read for Bordered {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = if self.left > 0 {
            self.left
        } else {
            BEHIND_BYTES
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(out.len());
        let n = self.inner.read(&mut out[..most])?;
        self.left = self.left.saturating_sub(n as u64);
        Ok(n)
    }
}

/// The error for a local file without its pinned size. It is never counted as a bad document.
#[derive(Debug, thiserror::Error)]
#[error("it changed from {was} to {is} bytes while it was in use")]
pub(super) struct Changed {
    was: u64,
    is: u64,
}

fn changed(was: u64, is: u64) -> io::Error {
    io::Error::other(Changed { was, is })
}

/// Fails when a local file does not have its pinned size. An object is not checked: it is read up to its
/// pinned size only.
pub(super) fn check_size(file: &InputFile) -> io::Result<()> {
    let Location::Local(path) = &file.location else {
        return Ok(());
    };
    let size = path.metadata()?.len();
    if size == file.pin.size {
        Ok(())
    } else {
        Err(changed(file.pin.size, size))
    }
}

/// A local file up to its pinned size. An earlier end means that the file shrank, not that the documents end.
struct LocalRead {
    file: File,
    /// Bytes of the file in the input list.
    size: u64,
    /// Bytes from the read position to the pinned size.
    left: u64,
}

impl Read for LocalRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(out.len());
        let n = self.file.read(&mut out[..want])?;
        if n == 0 && want > 0 {
            let is = self.file.metadata()?.len();
            // It may have grown again meanwhile: it was no longer than the position of this read.
            return Err(changed(self.size, is.min(self.size - self.left)));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

/// An object in a store, up to its pinned size.
#[derive(Clone)]
pub(super) struct RemoteObject {
    store: Arc<dyn Store>,
    key: String,
    size: u64,
    runtime: Handle,
}

impl RemoteObject {
    /// Returns the object of a remote file. Must be called inside a runtime.
    pub(super) fn from_file(file: &InputFile) -> io::Result<Self> {
        let Location::Remote { store, key } = &file.location else {
            return Err(io::Error::other("not a remote file"));
        };
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        Ok(Self {
            store: store.clone(),
            key: key.clone(),
            size: file.pin.size,
            runtime,
        })
    }

    /// Returns the pinned size.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Requests a range before it is needed.
    pub(super) fn request(&self, range: Range<u64>) -> Requested {
        let object = self.clone();
        let asked = range.clone();
        let task = self.runtime.spawn(async move {
            // The semaphore is never closed.
            let _permit = AHEAD.acquire().await;
            object.fetch(asked).await
        });
        Requested { range, task }
    }

    /// Requests a range, and more behind it until the line that holds its last byte has ended, unless that is long.
    /// Asking for the rest when the range is read would take the time of an answer for many a block.
    fn request_lines(&self, range: Range<u64>) -> Requested {
        let object = self.clone();
        let last = range.end.saturating_sub(range.start + 1) as usize;
        let first = range.start..self.size.min(range.end.saturating_add(BEHIND_BYTES));
        let (asked, most) = (first.clone(), range.end.saturating_add(RANGE_BYTES));
        let task = self.runtime.spawn(async move {
            // The semaphore is never closed.
            let _permit = AHEAD.acquire().await;
            let mut at = asked.end;
            let mut parts = vec![object.fetch(asked).await?];
            let mut seen = last;
            while at < object.size.min(most) && !ends_in_line(&parts, seen) {
                seen = parts.iter().map(Bytes::len).sum();
                let end = object.size.min(at + BEHIND_BYTES.max(seen as u64 / 8));
                parts.push(object.fetch(at..end).await?);
                at = end;
            }
            Ok(joined(parts))
        });
        Requested { range: first, task }
    }

    /// Waits for a range that was requested; one that failed is requested again.
    pub(super) fn take(&self, mut requested: Requested) -> io::Result<Bytes> {
        match self.runtime.block_on(&mut requested.task) {
            Ok(Ok(bytes)) => Ok(bytes),
            _ => self.range(requested.range.clone()),
        }
    }

    /// Reads a range; repeats requests that fail for a transient reason.
    pub(super) fn range(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for _ in 1..TRIES {
            match self.try_range(range.clone()) {
                Err(e) if e.kind.is_transient() => {
                    tracing::warn!(error = %e, "cannot read the input; retrying");
                    std::thread::sleep(backoff.pause());
                }
                done => return done.map_err(io::Error::other),
            }
        }
        self.try_range(range).map_err(io::Error::other)
    }

    fn try_range(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.runtime.block_on(self.fetch(range))
    }

    async fn fetch(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        let chunks = self.store.get_range(&self.key, range).await?;
        Ok(joined(chunks.try_collect().await?))
    }
}

/// Returns the parts as one.
pub(super) fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    parts.concat().into()
}

/// Returns whether there is a line break from byte `from` of `parts` on.
fn ends_in_line(parts: &[Bytes], mut from: usize) -> bool {
    for part in parts {
        let rest = part.get(from..).unwrap_or_default();
        if memchr::memchr(b'\n', rest).is_some() {
            return true;
        }
        from = from.saturating_sub(part.len());
    }
    false
}

/// A range of an object that is on its way. Dropping it ends the request.
pub(super) struct Requested {
    pub(super) range: Range<u64>,
    task: JoinHandle<Result<Bytes, StoreError>>,
}

impl Drop for Requested {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sequential reads of an object, with one range in memory and the next one on its way.
pub(super) struct RemoteRead {
    object: RemoteObject,
    /// The end of the range in `buffer`.
    at: u64,
    /// Requests end here, and are small behind it.
    soft_end: Option<u64>,
    next: Option<Requested>,
    buffer: Bytes,
}

impl RemoteRead {
    pub(super) fn new(object: RemoteObject, at: u64, soft_end: Option<u64>) -> Self {
        Self {
            object,
            at,
            soft_end,
            next: None,
            buffer: Bytes::new(),
        }
    }

    /// Requests the range at `at`, if it is surely needed.
    fn request(&mut self) {
        let end = self.soft_end.unwrap_or(self.object.size);
        if self.at < end.min(self.object.size) {
            let range = self.at..end.min(self.at + RANGE_BYTES);
            self.next = Some(self.object.request(range));
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let bytes = if let Some(requested) = self.next.take() {
            self.object.take(requested)?
        } else {
            let most = match self.soft_end {
                Some(end) if self.at < end => RANGE_BYTES.min(end - self.at),
                Some(_) => BEHIND_BYTES,
                None => RANGE_BYTES,
            };
            let end = self.object.size.min(self.at + most);
            self.object.range(self.at..end)?
        };
        if bytes.is_empty() {
            return Err(io::Error::other("the store gave no bytes of a range"));
        }
        self.at += bytes.len() as u64;
        self.buffer = bytes;
        self.request();
        Ok(())
    }
}

impl Read for RemoteRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() && self.at < self.object.size {
            self.fill()?;
        }
        let n = out.len().min(self.buffer.len());
        self.buffer.copy_to_slice(&mut out[..n]);
        Ok(n)
    }
}
