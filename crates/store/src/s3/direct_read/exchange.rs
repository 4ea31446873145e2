//! One question and what became of it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::super::config::DATA_TIMEOUT;
use super::super::{S3Store, errors, read};
use super::head::{self, Head};
use super::pool::Connection;
use super::signed::Signed;
use crate::{Effect, ErrorKind, Op, StoreError};

/// Read at a time before the body: what comes of it with the head is copied.
const HEAD_READ_BYTES: usize = 4096;
const HEAD_BYTES_MAX: usize = 64 << 10;
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The head of an answer, and the connection on which the rest of its body comes.
pub(super) struct Answer {
    pub(super) head: Head,
    /// What came of the body with the head.
    pub(super) early: Bytes,
    pub(super) connection: Connection,
}

/// What became of a question; what is final is an error.
pub(super) enum Asked {
    /// The body follows.
    Answer(Answer),
    /// Worth another try.
    Failed(StoreError),
    /// Not understood, or not allowed: the SDK may know better.
    Refused(String),
}

/// Why there is no answer.
struct Broken {
    why: String,
    /// Not one byte came, and nobody waited long.
    at_once: bool,
}

/// Asks once for a range; with `etag`, of that version of the object. A connection that the other side
/// closed meanwhile, and a signature that has run out, do not count.
pub(super) async fn ask(
    store: &S3Store,
    key: &str,
    range: &Range<u64>,
    etag: Option<&str>,
    mut fresh: bool,
) -> Result<Asked, StoreError> {
    let direct_read = &store.0.direct_read;
    loop {
        let (signed, known) = match direct_read.signatures.of(store, key).await {
            Ok(signed) => signed,
            // No credentials, or a kind of bucket whose URLs can't be signed.
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
            let said = (answer.head.value("content-range"), answer.head.length());
            if status == 206 && said.1.is_none() {
                return Ok(Asked::Refused("a body without a length".to_owned()));
            }
            return read::judge(store, key, range, said).map(|()| Asked::Answer(answer));
        }
        let document = document(&mut answer).await;
        let header = |name: &str| answer.head.value(name);
        let (kind, detail) = errors::of_read(Op::GetRange, status, &document, header);
        if answer.head.keeps_open() && Some(document.len() as u64) == answer.head.length() {
            direct_read.pool.give_back(answer.connection);
        }
        match status {
            416 => return Err(read::beyond(store, key, range, None)),
            404 | 412 => return Err(failed(store, key, kind, detail)),
            408 | 429 | 500 | 502..=599 => {
                return Ok(Asked::Failed(failed(store, key, kind, detail)));
            }
            400..=403 if known => direct_read.signatures.forget(key),
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
    // Heads are short, and how short is not known.
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

/// The head; what came behind it stays in `bytes`.
async fn answered(connection: &mut Connection, bytes: &mut BytesMut) -> std::io::Result<Head> {
    loop {
        bytes.reserve(HEAD_READ_BYTES);
        if connection.wire.read_buf(bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        while let Some((head, length)) = head::parse(bytes).map_err(std::io::Error::other)? {
            let _ = bytes.split_to(length);
            // Heads of 1xx announce another.
            if head.status >= 200 {
                return Ok(head);
            }
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(std::io::Error::other("its head does not end"));
        }
    }
}

/// What a refusal says of itself, or the beginning of it.
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
    // The status has said enough where the document does not come.
    let _ = timeout(DATA_TIMEOUT, rest).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
