//! One request and its answer.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::super::{S3Store, errors};
use super::head::{self, Head};
use super::pool::Connection;
use super::signed::Signed;
use crate::limits::DATA_TIMEOUT;
use crate::{Effect, ErrorKind, Op, StoreError, download};

/// Bytes read at a time before the body; body bytes among them are copied.
const HEAD_READ_BYTES: usize = 4096;
const HEAD_BYTES_MAX: usize = 64 << 10;
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The head of an answer, and the connection from which the rest of its body is read.
pub(super) struct Answer {
    pub(super) head: Head,
    /// Bytes of the body that arrived with the head.
    pub(super) early: Bytes,
    pub(super) connection: Connection,
}

/// The outcome of a request; a final failure is an error instead.
pub(super) enum Asked {
    /// A success, with its body to be read.
    Answer(Answer),
    /// A retry may succeed.
    Failed(StoreError),
    /// Not understood, or not allowed: to be repeated through the SDK.
    Refused(String),
}

/// A request without an answer.
struct Broken {
    why: String,
    /// The connection closed without a byte of an answer.
    at_once: bool,
}

/// Requests a range once; with `etag`, of that version of the object. A reused connection that the server
/// had closed, and an expired signature, do not count as a try.
pub(super) async fn ask(
    store: &S3Store,
    key: &str,
    range: &Range<u64>,
    etag: Option<&str>,
    mut fresh: bool,
) -> Result<Asked, StoreError> {
    let direct_read = &store.0.direct_read;
    loop {
        let (signed, known) = match direct_read.signatures.get(store, key).await {
            Ok(signed) => signed,
            // No credentials, or a kind of bucket whose URLs cannot be signed.
            Err(why) => return Ok(Asked::Refused(why.to_string())),
        };
        let connection = match direct_read.pool.connect(&signed.to, fresh).await {
            Ok(connection) => connection,
            Err(why) => {
                let detail = format!("no connection to {}: {why}", store.0.endpoint);
                let kind = ErrorKind::Unreachable;
                return Ok(Asked::Failed(failed(store, key, kind, detail)));
            }
        };
        let used = connection.used;
        let mut answer = match exchange(connection, &signed, range, etag).await {
            Ok(answer) => answer,
            Err(broken) if used && broken.at_once => {
                fresh = true;
                continue;
            }
            Err(Broken { why, .. }) => {
                return Ok(Asked::Failed(failed(store, key, ErrorKind::Timeout, why)));
            }
        };
        let status = answer.head.status;
        if matches!(status, 200..=299) {
            let content_range = answer.head.value("content-range");
            let length = answer.head.length();
            if status == 206 && length.is_none() {
                return Ok(Asked::Refused("a body without a length".to_owned()));
            }
            return download::check_answer(&store.0.root, key, range, content_range, length)
                .map(|()| Asked::Answer(answer));
        }
        let document = document(&mut answer).await;
        let header = |name: &str| answer.head.value(name);
        let (kind, detail) = errors::from_answer(Op::GetRange, status, &document, header);
        if answer.head.keeps_open() && Some(document.len() as u64) == answer.head.length() {
            direct_read.pool.give_back(answer.connection);
        }
        match status {
            416 => return Err(download::beyond(&store.0.root, key, range, None)),
            404 | 412 => return Err(failed(store, key, kind, detail)),
            408 | 429 | 500 | 502..=599 => {
                return Ok(Asked::Failed(failed(store, key, kind, detail)));
            }
            400..=403 => {
                direct_read.signatures.forget(key);
                if !store.renewed_since(signed.generation).await && !known {
                    return Ok(Asked::Refused(detail));
                }
            }
            _ => return Ok(Asked::Refused(detail)),
        }
    }
}

fn failed(store: &S3Store, key: &str, kind: ErrorKind, detail: String) -> StoreError {
    store.error(Op::GetRange, key, kind, Effect::DidNot, detail)
}

/// Sends the request and reads the head of its answer.
async fn exchange(
    mut connection: Connection,
    signed: &Signed,
    range: &Range<u64>,
    etag: Option<&str>,
) -> Result<Answer, Broken> {
    let request = head::request(signed, range, etag);
    let mut bytes = BytesMut::new();
    // A head may be of any length, so a single byte must wake the reader.
    connection.expect(1);
    let asked = async {
        connection.wire.write_all(request.as_bytes()).await?;
        connection.wire.flush().await?;
        answered(&mut connection, &mut bytes).await
    };
    match timeout(DATA_TIMEOUT, asked).await {
        Ok(Ok(head)) => Ok(Answer {
            head,
            early: bytes.freeze(),
            connection,
        }),
        Ok(Err(why)) => Err(Broken {
            why: format!("no answer: {why}"),
            at_once: bytes.is_empty(),
        }),
        Err(_) => Err(Broken {
            why: format!("no answer for {} s", DATA_TIMEOUT.as_secs()),
            at_once: false,
        }),
    }
}

/// Reads the head; bytes behind it stay in `bytes`.
async fn answered(connection: &mut Connection, bytes: &mut BytesMut) -> std::io::Result<Head> {
    loop {
        bytes.reserve(HEAD_READ_BYTES);
        if connection.wire.read_buf(bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        while let Some((head, length)) = head::parse(bytes).map_err(std::io::Error::other)? {
            let _ = bytes.split_to(length);
            // A 1xx answer is followed by another.
            if head.status >= 200 {
                return Ok(head);
            }
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(std::io::Error::other("its head is too long"));
        }
    }
}

/// Reads the document of a refusal, or its beginning.
async fn document(answer: &mut Answer) -> String {
    let length = answer.head.length().map_or(DOCUMENT_BYTES_MAX, |length| {
        usize::try_from(length).map_or(DOCUMENT_BYTES_MAX, |n| n.min(DOCUMENT_BYTES_MAX))
    });
    let mut bytes = BytesMut::from(&answer.early[..]);
    let rest = async {
        while bytes.len() < length {
            if answer.connection.wire.read_buf(&mut bytes).await? == 0 {
                break;
            }
        }
        Ok::<_, std::io::Error>(())
    };
    // Without the document, the status alone decides.
    let _ = timeout(DATA_TIMEOUT, rest).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
