//! Reads of whole objects, and of ranges as chunks, from a store behind a network. A body that breaks off or stalls is
//! requested again from where it stopped, a bounded number of times.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use crate::limits::{CHUNK_TIMEOUT, RESUMES_MAX};
use crate::speed::Speed;
use crate::{Backoff, Chunks, Effect, ErrorKind, Op, StoreError};

/// The chunks of one answer's body; an error says why the body broke off.
pub(crate) type Parts = BoxStream<'static, Result<Bytes, String>>;

/// A successful answer to a read, whose body has yet to arrive.
pub(crate) struct Answer {
    pub(crate) length: Option<u64>,
    pub(crate) content_range: Option<String>,
    pub(crate) etag: Option<String>,
    pub(crate) parts: Parts,
}

/// The requests of one store.
#[async_trait]
pub(crate) trait Reads: Send + Sync + 'static {
    fn root(&self) -> &str;

    /// Requests a whole object; with `fresh` over a new connection.
    async fn request(&self, key: &str, fresh: bool) -> Result<Answer, StoreError>;

    /// Requests bytes of the version `etag` of an object, of any version without one. Returns `None` if the range reaches
    /// beyond the object.
    async fn request_range(
        &self,
        key: &str,
        range: &Range<u64>,
        etag: Option<String>,
    ) -> Result<Option<Answer>, StoreError>;

    /// Returns the size of an object in bytes.
    async fn size(&self, key: &str) -> Result<u64, StoreError>;
}

/// Reads a whole object of at most `at_most` bytes. Most are small, so a broken body is read again from
/// its start.
pub(crate) async fn whole(
    store: &dyn Reads,
    key: &str,
    at_most: u64,
    fresh: bool,
) -> Result<Bytes, StoreError> {
    let (mut tries, mut backoff) = (0, Backoff::STORE);
    loop {
        match collect(store.request(key, fresh).await?, at_most).await {
            Ok(body) => return Ok(body),
            Err(Incomplete::TooLarge(size)) => {
                let location = format!("{}/{key}", store.root());
                return Err(StoreError::too_large(location, size, at_most));
            }
            Err(Incomplete::Broken(why)) if tries == RESUMES_MAX => {
                return Err(error(store, Op::Get, key, ErrorKind::Timeout, why));
            }
            Err(Incomplete::Broken(why)) => tracing::debug!(key, why, "reading again"),
        }
        pause(&mut backoff).await;
        tries += 1;
    }
}

fn error(store: &dyn Reads, op: Op, key: &str, kind: ErrorKind, why: String) -> StoreError {
    let location = format!("{}/{key}", store.root());
    StoreError::new(op, location, kind, Effect::DidNot, why)
}

/// The reason why a body was not read to its end.
pub(crate) enum Incomplete {
    /// It broke off; a retry may succeed.
    Broken(String),
    /// It is larger than the bound; its size in bytes, where the answer states it.
    TooLarge(Option<u64>),
}

impl From<String> for Incomplete {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

/// Reads a body. Memory grows with the bytes received, not with the length that the answer claims.
pub(crate) async fn collect(mut answer: Answer, at_most: u64) -> Result<Bytes, Incomplete> {
    let length = answer.length;
    if length.is_some_and(|length| length > at_most) {
        return Err(Incomplete::TooLarge(length));
    }
    let mut speed = Speed::default();
    let Some(first) = next_chunk(&mut answer.parts, &mut speed).await? else {
        return whole_or_why(Bytes::new(), length);
    };
    // Most records arrive in one chunk: no copy.
    if Some(first.len() as u64) == length {
        return Ok(first);
    }
    let bound = usize::try_from(length.unwrap_or(at_most)).unwrap_or(usize::MAX);
    let mut body = Vec::new();
    let mut next = Some(first);
    while let Some(chunk) = next {
        let size = body.len().saturating_add(chunk.len());
        if size > bound {
            return Err(Incomplete::TooLarge(None));
        }
        if size > body.capacity() {
            let room = size.max(body.capacity().saturating_mul(2)).min(bound);
            body.reserve_exact(room - body.len());
        }
        body.extend_from_slice(&chunk);
        next = next_chunk(&mut answer.parts, &mut speed).await?;
    }
    whole_or_why(body.into(), length)
}

fn whole_or_why(body: Bytes, length: Option<u64>) -> Result<Bytes, Incomplete> {
    match length {
        Some(length) if length != body.len() as u64 => Err(Incomplete::Broken(format!(
            "the body ended after {} of {length} bytes",
            body.len()
        ))),
        _ => Ok(body),
    }
}

async fn next_chunk(parts: &mut Parts, speed: &mut Speed) -> Result<Option<Bytes>, String> {
    let asked = Instant::now();
    match tokio::time::timeout(CHUNK_TIMEOUT, parts.next()).await {
        Ok(Some(Ok(chunk))) => {
            speed.note(asked.elapsed(), chunk.len())?;
            Ok(Some(chunk))
        }
        Ok(None) => Ok(None),
        Ok(Some(Err(why))) => Err(format!("the body broke off: {why}")),
        Err(_) => Err(format!("no data for {} s", CHUNK_TIMEOUT.as_secs())),
    }
}

/// Waits before another try.
pub(crate) async fn pause(backoff: &mut Backoff) {
    tokio::time::sleep(backoff.full_jitter(rand::random())).await;
}

/// Reads bytes `range` of the object.
pub(crate) async fn range(
    store: Arc<dyn Reads>,
    key: &str,
    range: Range<u64>,
) -> Result<Chunks, StoreError> {
    if range.is_empty() {
        return empty(&*store, key, range.start).await;
    }
    // Servers keep sizes in signed 64 bits and refuse a larger end as malformed.
    if i64::try_from(range.end).is_err() {
        return Err(beyond(store.root(), key, &range, None));
    }
    from(store, key, range, None).await
}

/// Reads bytes `range` of the version `etag` of the object, of which a part was read before.
pub(crate) async fn from(
    store: Arc<dyn Reads>,
    key: &str,
    range: Range<u64>,
    etag: Option<String>,
) -> Result<Chunks, StoreError> {
    let answer = fetch(&*store, key, &range, etag).await?;
    let download = Download {
        key: key.to_owned(),
        store,
        left: range,
        etag: answer.etag,
        parts: answer.parts,
        speed: Speed::default(),
        resumes: 0,
        backoff: Backoff::STORE,
    };
    Ok(stream::try_unfold(download, Download::next).boxed())
}

/// Checks an empty range by the object's size, because HTTP has no empty ranges.
async fn empty(store: &dyn Reads, key: &str, at: u64) -> Result<Chunks, StoreError> {
    let size = store.size(key).await.map_err(|error| StoreError {
        op: Op::GetRange,
        ..error
    })?;
    if at > size {
        return Err(beyond(store.root(), key, &(at..at), Some(size)));
    }
    Ok(stream::empty().boxed())
}

async fn fetch(
    store: &dyn Reads,
    key: &str,
    range: &Range<u64>,
    etag: Option<String>,
) -> Result<Answer, StoreError> {
    let Some(answer) = store.request_range(key, range, etag.clone()).await? else {
        return Err(beyond(store.root(), key, range, None));
    };
    let (given, length) = (answer.content_range.as_deref(), answer.length);
    check_answer(store.root(), key, range, given, length)?;
    if let (Some(began), Some(now)) = (&etag, &answer.etag)
        && began != now
    {
        let why = format!("another version ({now}) than that of which a part was read ({began})");
        return Err(error(store, Op::GetRange, key, ErrorKind::Contract, why));
    }
    Ok(answer)
}

/// Checks that a successful answer, by its content-range and length, is the requested one.
pub(crate) fn check_answer(
    root: &str,
    key: &str,
    range: &Range<u64>,
    content_range: Option<&str>,
    length: Option<u64>,
) -> Result<(), StoreError> {
    let first = format!("bytes {}-", range.start);
    let starts_there = content_range.is_some_and(|answer| answer.starts_with(&first));
    match length {
        Some(length) if starts_there && length == range.end - range.start => Ok(()),
        // Stores truncate a range that reaches beyond the object instead of refusing it.
        Some(length) if starts_there && length < range.end - range.start => {
            Err(beyond(root, key, range, Some(range.start + length)))
        }
        length => {
            let detail = format!(
                "requested {range:?}, received content-range {content_range:?} and length {length:?}"
            );
            let (op, kind) = (Op::GetRange, ErrorKind::Contract);
            let location = format!("{root}/{key}");
            Err(StoreError::new(op, location, kind, Effect::DidNot, detail))
        }
    }
}

/// Returns the error of a range that reaches beyond an object of `size` bytes.
pub(crate) fn beyond(root: &str, key: &str, range: &Range<u64>, size: Option<u64>) -> StoreError {
    let size = size.map_or_else(|| "fewer".to_owned(), |size| size.to_string());
    let detail = format!(
        "range {}..{} of an object of {size} bytes",
        range.start, range.end
    );
    let (op, kind) = (Op::GetRange, ErrorKind::Range);
    StoreError::new(op, format!("{root}/{key}"), kind, Effect::DidNot, detail)
}

/// A ranged read in progress.
struct Download {
    store: Arc<dyn Reads>,
    key: String,
    left: Range<u64>,
    etag: Option<String>,
    parts: Parts,
    speed: Speed,
    resumes: u32,
    backoff: Backoff,
}

impl Download {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        while !self.left.is_empty() {
            let wanted = self.left.end - self.left.start;
            let why = match next_chunk(&mut self.parts, &mut self.speed).await {
                Ok(Some(chunk)) if chunk.len() as u64 <= wanted => {
                    self.left.start += chunk.len() as u64;
                    return Ok(Some((chunk, self)));
                }
                Ok(Some(_)) => "more bytes arrived than were requested".to_owned(),
                Ok(None) => format!("the body ended {wanted} bytes early"),
                Err(why) => why,
            };
            self.resume(why).await?;
        }
        Ok(None)
    }

    async fn resume(&mut self, why: String) -> Result<(), StoreError> {
        if self.resumes == RESUMES_MAX {
            let why = format!("{why}, after {RESUMES_MAX} resumed reads");
            let (op, kind) = (Op::GetRange, ErrorKind::Timeout);
            return Err(error(&*self.store, op, &self.key, kind, why));
        }
        tracing::debug!(key = self.key, at = self.left.start, why, "resuming a read");
        pause(&mut self.backoff).await;
        self.resumes += 1;
        self.speed = Speed::default();
        let answer = fetch(&*self.store, &self.key, &self.left, self.etag.take()).await?;
        (self.parts, self.etag) = (answer.parts, answer.etag);
        Ok(())
    }
}
