//! Resumable uploads: <https://cloud.google.com/storage/docs/performing-resumable-uploads>. The condition that the object
//! is absent is set at the beginning and holds at the end. The address of an upload is its credential.

use std::ops::Range;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderValue};
use http::{Method, Uri};

use super::Gcs;
use crate::cloud::{Answer, CloudStore, Request};
use crate::limits::DATA_ATTEMPTS;
use crate::{Backoff, Create, Effect, ErrorKind, Op, StoreError, download};

/// Size of a part: a multiple of 256 KiB, as the interface demands of all but the last.
const PART_BYTES: usize = 16 << 20;
/// The answer to a part that is not the last.
const INCOMPLETE: u16 = 308;
/// The answer to an aborted upload.
const CLOSED: u16 = 499;

/// Begins an upload and returns its address; an empty one if the object exists.
pub(super) async fn begin(
    gcs: &Gcs,
    store: &CloudStore,
    op: Op,
    key: &str,
) -> Result<String, StoreError> {
    let path = gcs.upload("resumable", &store.full(key));
    let request = || gcs.plain(Method::POST, &path);
    let accepts = |answer: &Answer| store.is_there(answer);
    let answer = store.tried(op, key, request, accepts).await?;
    match answer.header("location") {
        Some(address) => Ok(address.to_owned()),
        None if store.is_there(&answer) => Ok(String::new()),
        None => {
            let why = "the answer to a new upload has no address";
            Err(store.broken(op, key, why))
        }
    }
}

/// Uploads a body part by part.
pub(super) async fn upload(
    gcs: &Gcs,
    store: &CloudStore,
    key: &str,
    body: &Bytes,
) -> Result<Create, StoreError> {
    let address = begin(gcs, store, Op::Upload, key).await?;
    if address.is_empty() {
        return Ok(Create::Exists);
    }
    let (mut sent, mut failures, mut backoff) = (0, 0, Backoff::STORE);
    let mut last = None;
    let mut request = part(&address, body, 0..PART_BYTES.min(body.len()));
    loop {
        let answer = store.unsigned(Op::Upload, key, request).await;
        match progress(store, key, answer)? {
            Progress::Ended(created) => return Ok(created),
            Progress::Stored(bytes) if bytes > sent && bytes <= body.len() => {
                (sent, failures) = (bytes, 0);
                request = part(&address, body, sent..body.len().min(sent + PART_BYTES));
                continue;
            }
            Progress::Stored(_) => {
                request = part(&address, body, sent..body.len().min(sent + PART_BYTES));
                failures += 1;
            }
            Progress::Unknown(error) => {
                last = Some(error);
                // What has arrived decides how to go on.
                request = asking(&address, body.len());
                failures += 1;
            }
        }
        if failures == DATA_ATTEMPTS {
            let stalled = || stalled(store, key, sent, body.len());
            return Err(last.unwrap_or_else(stalled));
        }
        download::pause(&mut backoff).await;
    }
}

/// Returns the error of a store that takes no more of a body.
fn stalled(store: &CloudStore, key: &str, sent: usize, whole: usize) -> StoreError {
    let why = format!("{sent} of {whole} bytes arrived, then none in {DATA_ATTEMPTS} tries");
    let (kind, effect) = (ErrorKind::Timeout, Effect::Unknown);
    store.error(Op::Upload, key, kind, effect, why)
}

/// The meaning of the answer to a part.
enum Progress {
    Ended(Create),
    /// The store has this many bytes.
    Stored(usize),
    Unknown(StoreError),
}

fn progress(
    store: &CloudStore,
    key: &str,
    answer: Result<Answer, StoreError>,
) -> Result<Progress, StoreError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.kind.is_transient() => return Ok(Progress::Unknown(error)),
        Err(error) => return Err(error),
    };
    if answer.status == INCOMPLETE {
        return Ok(Progress::Stored(stored(answer.header("range"))));
    }
    match store.created(Op::Upload, key, &answer) {
        Ok(created) => Ok(Progress::Ended(created)),
        // The upload is gone: all of it is made again.
        Err(error) if matches!(answer.status, 404 | 410) => Err(StoreError {
            kind: ErrorKind::Conflict,
            effect: Effect::Unknown,
            ..error
        }),
        Err(error) if error.kind.is_transient() => Ok(Progress::Unknown(error)),
        Err(error) => Err(error),
    }
}

/// Returns the bytes that have arrived, by a header as `bytes=0-1048575`; it is absent for none.
fn stored(range: Option<&str>) -> usize {
    let last = range.and_then(|range| range.rsplit_once('-')?.1.parse().ok());
    last.map_or(0, |last: usize| last.saturating_add(1))
}

/// Returns the request that sends bytes `range` of a body; the last part completes the upload.
pub(super) fn part(address: &str, body: &Bytes, range: Range<usize>) -> Request {
    let whole = body.len();
    let about = if range.is_empty() {
        format!("bytes */{whole}")
    } else {
        format!("bytes {}-{}/{whole}", range.start, range.end - 1)
    };
    to(address, Method::PUT, body.slice(range), &about)
}

/// Returns the request that asks how many bytes have arrived.
fn asking(address: &str, whole: usize) -> Request {
    let about = format!("bytes */{whole}");
    to(address, Method::PUT, Bytes::new(), &about)
}

fn to(address: &str, method: Method, body: Bytes, about: &str) -> Request {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from(address).unwrap_or_default();
    let length = HeaderValue::from(request.body().len());
    request.headers_mut().insert(CONTENT_LENGTH, length);
    if let Ok(about) = HeaderValue::try_from(about) {
        request.headers_mut().insert(CONTENT_RANGE, about);
    }
    request
}

/// Aborts an upload; succeeds if it is gone already.
pub(super) async fn abort(store: &CloudStore, key: &str, address: &str) -> Result<(), StoreError> {
    let mut request = to(address, Method::DELETE, Bytes::new(), "");
    request.headers_mut().remove(CONTENT_RANGE);
    let answer = store.unsigned(Op::Delete, key, request).await?;
    let gone = matches!(answer.status, 404 | 410 | CLOSED);
    if answer.is_success() || gone || answer.status == 405 {
        return Ok(());
    }
    store.created(Op::Delete, key, &answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_say_where_they_belong() {
        let body = Bytes::from_static(b"0123456789");
        let about = |range| {
            let request = part("http://h/u", &body, range);
            let about = request.headers()[CONTENT_RANGE]
                .to_str()
                .unwrap()
                .to_owned();
            (about, request.into_body())
        };
        assert_eq!(about(0..4), ("bytes 0-3/10".into(), "0123".into()));
        assert_eq!(about(8..10), ("bytes 8-9/10".into(), "89".into()));
        let none = part("http://h/u", &Bytes::new(), 0..0);
        assert_eq!(none.headers()[CONTENT_RANGE], "bytes */0");
        assert_eq!(PART_BYTES % (256 << 10), 0);
    }

    #[test]
    fn what_has_arrived_is_read_from_the_header() {
        assert_eq!(stored(Some("bytes=0-1048575")), 1 << 20);
        assert_eq!(stored(None), 0);
        assert_eq!(stored(Some("none")), 0);
    }
}
