//! One stored object: its headers, and its bytes in memory or in a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream;
use s3s::dto::{ETag, ETagCondition, StreamingBlob, Timestamp};
use s3s::{Body, S3Result, s3_error};
use serde::{Deserialize, Serialize};

use crate::checksum::Checksums;

/// The description of an object, without its bytes and key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Headers {
    pub etag: String,
    pub size: u64,
    /// The time in milliseconds since 1970.
    pub modified_ms: u64,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_disposition: Option<String>,
    pub content_language: Option<String>,
    pub cache_control: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub checksums: Checksums,
}

/// A stored object, which is never changed, only replaced.
#[derive(Debug)]
pub(crate) struct Object {
    pub headers: Headers,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Bytes),
    File { path: PathBuf, offset: u64 },
}

impl Headers {
    pub(crate) fn etag(&self) -> ETag {
        ETag::Strong(self.etag.clone())
    }

    pub(crate) fn modified(&self) -> Timestamp {
        Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(self.modified_ms))
    }
}

/// Returns the current time in the stored unit.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

impl Object {
    pub(crate) fn in_memory(headers: Headers, body: Bytes) -> Self {
        Self {
            headers,
            place: Place::Memory(body),
        }
    }

    pub(crate) fn in_file(headers: Headers, path: PathBuf, offset: u64) -> Self {
        Self {
            headers,
            place: Place::File { path, offset },
        }
    }

    pub(crate) fn matches(&self, wanted: &ETagCondition) -> bool {
        wanted
            .as_etag()
            .is_none_or(|etag| etag.value() == self.headers.etag)
    }

    /// Removes the object's file, if it has one and somebody has not done so.
    pub(crate) fn remove_file(&self) -> io::Result<()> {
        match &self.place {
            Place::Memory(_) => Ok(()),
            Place::File { path, .. } => match std::fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            },
        }
    }

    /// Removes the file of an object that a newer one has replaced. If that fails, the next start removes the file,
    /// as only the newest of a key's files counts.
    pub(crate) fn remove_replaced(&self) {
        if let Err(error) = self.remove_file() {
            tracing::warn!(place = ?self.place, %error, "cannot remove the file of a replaced object");
        }
    }
}

/// Returns the bytes `range` of an object, ready to be sent.
pub(crate) async fn read(object: &Arc<Object>, range: Range<u64>) -> S3Result<StreamingBlob> {
    match &object.place {
        Place::Memory(body) => {
            let bytes = body.slice(range.start as usize..range.end as usize);
            Ok(StreamingBlob::from(Body::from(bytes)))
        }
        Place::File { path, offset } => {
            let file = tokio::fs::File::open(path)
                .await
                .map_err(|error| {
                    s3_error!(error, InternalError, "{}: cannot open", path.display())
                })?
                .into_std()
                .await;
            Ok(stream_file(file, range.start + offset..range.end + offset))
        }
    }
}

/// Reads in chunks, so that memory is bounded whatever the size of the object.
fn stream_file(file: File, range: Range<u64>) -> StreamingBlob {
    const CHUNK: u64 = 1024 * 1024;
    let chunks = stream::unfold((Arc::new(file), range), |(file, left)| async move {
        if left.is_empty() {
            return None;
        }
        let end = left.end.min(left.start + CHUNK);
        let (reader, start) = (Arc::clone(&file), left.start);
        let read = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; (end - start) as usize];
            reader
                .read_exact_at(&mut buffer, start)
                .map(|()| Bytes::from(buffer))
        });
        let chunk = read
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        Some((chunk, (file, end..left.end)))
    });
    StreamingBlob::wrap(chunks)
}
