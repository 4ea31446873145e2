//! Reads of whole objects, and of ranges as chunks. A body that breaks off or stalls is requested again
//! from where it stopped, a bounded number of times.

use std::ops::Range;
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::speed::Speed;
use super::{S3Store, errors};
use crate::{Backoff, Chunks, Effect, ErrorKind, Op, StoreError};

/// Longest wait for the next chunk of a body, after which it is resumed over a new connection.
pub(super) const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const RESUMES_MAX: u32 = 4;

/// Reads a whole object of at most `at_most` bytes. Most are small, so a broken body is read again from
/// its start.
pub(super) async fn whole(
    store: &S3Store,
    client: &Client,
    key: &str,
    at_most: u64,
) -> Result<Bytes, StoreError> {
    let (mut tries, mut backoff) = (0, Backoff::STORE);
    loop {
        let get = client.get_object().bucket(&store.0.bucket);
        let sent = get.key(store.full(key)).send().await;
        let answer = sent.map_err(|error| store.mapped(Op::Get, key, &error))?;
        match collect(answer, at_most).await {
            Ok(body) => return Ok(body),
            Err(Incomplete::TooLarge(size)) => {
                let location = format!("{}/{key}", store.0.root);
                return Err(StoreError::too_large(location, size, at_most));
            }
            Err(Incomplete::Broken(why)) if tries == RESUMES_MAX => {
                return Err(store.error(Op::Get, key, ErrorKind::Timeout, Effect::DidNot, why));
            }
            Err(Incomplete::Broken(why)) => tracing::debug!(key, why, "reading again"),
        }
        pause(&mut backoff).await;
        tries += 1;
    }
}

/// The reason why a body was not read to its end.
enum Incomplete {
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
async fn collect(mut answer: GetObjectOutput, at_most: u64) -> Result<Bytes, Incomplete> {
    let length = answer.content_length().map(i64::unsigned_abs);
    if length.is_some_and(|length| length > at_most) {
        return Err(Incomplete::TooLarge(length));
    }
    let mut speed = Speed::default();
    let Some(first) = next_chunk(&mut answer.body, &mut speed).await? else {
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
        next = next_chunk(&mut answer.body, &mut speed).await?;
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

async fn next_chunk(body: &mut ByteStream, speed: &mut Speed) -> Result<Option<Bytes>, String> {
    let asked = Instant::now();
    match tokio::time::timeout(CHUNK_TIMEOUT, body.next()).await {
        Ok(Some(Ok(chunk))) => {
            speed.note(asked.elapsed(), chunk.len())?;
            Ok(Some(chunk))
        }
        Ok(None) => Ok(None),
        Ok(Some(Err(error))) => Err(format!("the body broke off: {}", errors::chain(&error))),
        Err(_) => Err(format!("no data for {} s", CHUNK_TIMEOUT.as_secs())),
    }
}

/// Waits before another try.
pub(super) async fn pause(backoff: &mut Backoff) {
    tokio::time::sleep(backoff.full_jitter(rand::random())).await;
}

/// Reads bytes `range` of the object.
pub(super) async fn range(
    store: S3Store,
    key: &str,
    range: Range<u64>,
) -> Result<Chunks, StoreError> {
    if range.is_empty() {
        return empty(&store, key, range.start).await;
    }
    // Servers keep sizes in signed 64 bits and refuse a larger end as malformed.
    if i64::try_from(range.end).is_err() {
        return Err(beyond(&store, key, &range, None));
    }
    from(store, key, range, None).await
}

/// Reads bytes `range` of the version `etag` of the object, of which a part was read before.
pub(super) async fn from(
    store: S3Store,
    key: &str,
    range: Range<u64>,
    etag: Option<String>,
) -> Result<Chunks, StoreError> {
    let (body, etag) = fetch(&store, key, &range, etag).await?;
    let download = Download {
        key: key.to_owned(),
        store,
        left: range,
        etag,
        body,
        speed: Speed::default(),
        resumes: 0,
        backoff: Backoff::STORE,
    };
    Ok(stream::try_unfold(download, Download::next).boxed())
}

/// Checks an empty range by the object's size, because HTTP has no empty ranges.
async fn empty(store: &S3Store, key: &str, at: u64) -> Result<Chunks, StoreError> {
    use crate::Store;
    let size = store
        .head(key)
        .await
        .map_err(|error| StoreError {
            op: Op::GetRange,
            ..error
        })?
        .size;
    if at > size {
        return Err(beyond(store, key, &(at..at), Some(size)));
    }
    Ok(stream::empty().boxed())
}

async fn fetch(
    store: &S3Store,
    key: &str,
    range: &Range<u64>,
    etag: Option<String>,
) -> Result<(ByteStream, Option<String>), StoreError> {
    let get = store
        .0
        .data
        .get_object()
        .bucket(&store.0.bucket)
        .key(store.full(key));
    let header = format!("bytes={}-{}", range.start, range.end - 1);
    let answer = match get.range(header).set_if_match(etag).send().await {
        Err(error) if errors::status(&error) == Some(416) => {
            return Err(beyond(store, key, range, None));
        }
        answer => answer.map_err(|error| store.mapped(Op::GetRange, key, &error))?,
    };
    let length = answer
        .content_length()
        .and_then(|length| u64::try_from(length).ok());
    check_answer(store, key, range, answer.content_range(), length)?;
    Ok((answer.body, answer.e_tag))
}

/// Checks that a successful answer, by its content-range and length, is the requested one.
pub(super) fn check_answer(
    store: &S3Store,
    key: &str,
    range: &Range<u64>,
    content_range: Option<&str>,
    length: Option<u64>,
) -> Result<(), StoreError> {
    let first = format!("bytes {}-", range.start);
    let starts_there = content_range.is_some_and(|answer| answer.starts_with(&first));
    match length {
        Some(length) if starts_there && length == range.end - range.start => Ok(()),
        // S3 truncates a range that reaches beyond the object instead of refusing it.
        Some(length) if starts_there && length < range.end - range.start => {
            Err(beyond(store, key, range, Some(range.start + length)))
        }
        length => {
            let detail = format!(
                "requested {range:?}, received content-range {content_range:?} and length {length:?}"
            );
            let (op, kind) = (Op::GetRange, ErrorKind::Contract);
            Err(store.error(op, key, kind, Effect::DidNot, detail))
        }
    }
}

pub(super) fn beyond(
    store: &S3Store,
    key: &str,
    range: &Range<u64>,
    size: Option<u64>,
) -> StoreError {
    let size = size.map_or_else(|| "fewer".to_owned(), |size| size.to_string());
    let detail = format!(
        "range {}..{} of an object of {size} bytes",
        range.start, range.end
    );
    store.error(Op::GetRange, key, ErrorKind::Range, Effect::DidNot, detail)
}

/// A ranged read in progress.
struct Download {
    store: S3Store,
    key: String,
    left: Range<u64>,
    etag: Option<String>,
    body: ByteStream,
    speed: Speed,
    resumes: u32,
    backoff: Backoff,
}

impl Download {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        while !self.left.is_empty() {
            let wanted = self.left.end - self.left.start;
            let why = match next_chunk(&mut self.body, &mut self.speed).await {
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
            let detail = format!("{why}, after {RESUMES_MAX} resumed reads");
            return Err(self.store.error(
                Op::GetRange,
                &self.key,
                ErrorKind::Timeout,
                Effect::DidNot,
                detail,
            ));
        }
        tracing::debug!(key = self.key, at = self.left.start, why, "resuming a read");
        pause(&mut self.backoff).await;
        self.resumes += 1;
        self.speed = Speed::default();
        (self.body, self.etag) =
            fetch(&self.store, &self.key, &self.left, self.etag.take()).await?;
        Ok(())
    }
}
