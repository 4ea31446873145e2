//! Uploads of data objects: one put, or parts for large bodies. Keys are unique, so an existing object of
//! the same size is the result of an earlier try.

use std::time::Duration;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::{S3Store, config, errors};
use crate::{Backoff, Create, Effect, ErrorKind, Op, Store, StoreError};

pub(super) const MULTIPART_ABOVE_BYTES: usize = 32 << 20;
const PART_BYTES: usize = 16 << 20;
const PARTS_AT_ONCE: usize = 4;
/// Tries of a whole upload after a 409 or a lost multipart upload.
const TRIES: u32 = 3;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(200));

pub(super) async fn upload(store: &S3Store, key: &str, body: Bytes) -> Result<Create, StoreError> {
    let (mut tries, mut backoff) = (1, BACKOFF);
    loop {
        let outcome = if body.len() > MULTIPART_ABOVE_BYTES {
            in_parts(store, key, &body).await
        } else {
            put(store, key, body.clone()).await
        };
        match outcome {
            Err(error) if error.kind == ErrorKind::Conflict && tries < TRIES => {
                tokio::time::sleep(backoff.full_jitter(rand::random())).await;
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn put(store: &S3Store, key: &str, body: Bytes) -> Result<Create, StoreError> {
    let size = body.len();
    let put = store
        .0
        .data
        .put_object()
        .bucket(&store.0.bucket)
        .key(store.full(key));
    let put = put
        .if_none_match("*")
        .set_server_side_encryption(store.0.encryption.mode().map(Into::into))
        .set_ssekms_key_id(store.0.encryption.kms_key())
        .body(ByteStream::from(body))
        .customize();
    // Frames carry CRC32C, so the signature does not hash the body again.
    match put
        .config_override(config::for_body(size))
        .disable_payload_signing()
        .send()
        .await
    {
        Ok(_) => Ok(Create::Created),
        Err(error) if errors::status(&error) == Some(412) => ours(store, key, size).await,
        Err(error) => Err(store.mapped(Op::Upload, key, &error)),
    }
}

/// Checks by its size whether the object under our unique key is ours.
async fn ours(store: &S3Store, key: &str, size: usize) -> Result<Create, StoreError> {
    let meta = store.head(key).await.map_err(|error| StoreError {
        op: Op::Upload,
        effect: Effect::Unknown,
        ..error
    })?;
    Ok(if meta.size == size as u64 {
        Create::Created
    } else {
        Create::Exists
    })
}

async fn in_parts(store: &S3Store, key: &str, body: &Bytes) -> Result<Create, StoreError> {
    let begin = store
        .0
        .data
        .create_multipart_upload()
        .bucket(&store.0.bucket)
        .key(store.full(key));
    let begun = begin
        .set_server_side_encryption(store.0.encryption.mode().map(Into::into))
        .set_ssekms_key_id(store.0.encryption.kms_key())
        .send()
        .await
        .map_err(|error| store.mapped(Op::Upload, key, &error))?;
    let Some(id) = begun.upload_id() else {
        let detail = "the answer to CreateMultipartUpload has no upload id";
        return Err(store.error(Op::Upload, key, ErrorKind::Contract, Effect::DidNot, detail));
    };
    match parts(store, key, id, body).await {
        Ok(parts) => complete(store, key, id, parts, body.len()).await,
        Err(error) => {
            abort(store, key, id).await;
            Err(error)
        }
    }
}

async fn parts(
    store: &S3Store,
    key: &str,
    id: &str,
    body: &Bytes,
) -> Result<Vec<CompletedPart>, StoreError> {
    let slices: Vec<(i32, Bytes)> = (1..)
        .zip((0..body.len()).step_by(PART_BYTES))
        .map(|(number, start)| {
            (
                number,
                body.slice(start..body.len().min(start + PART_BYTES)),
            )
        })
        .collect();
    let sends = slices
        .into_iter()
        .map(|(number, slice)| part(store, key, id, number, slice));
    let mut parts: Vec<CompletedPart> = stream::iter(sends)
        .buffer_unordered(PARTS_AT_ONCE)
        .try_collect()
        .await?;
    parts.sort_by_key(CompletedPart::part_number);
    Ok(parts)
}

pub(super) async fn part(
    store: &S3Store,
    key: &str,
    id: &str,
    number: i32,
    slice: Bytes,
) -> Result<CompletedPart, StoreError> {
    let size = slice.len();
    let send = store
        .0
        .data
        .upload_part()
        .bucket(&store.0.bucket)
        .key(store.full(key))
        .upload_id(id);
    let send = send
        .part_number(number)
        .body(ByteStream::from(slice))
        .customize();
    let sent = send
        .config_override(config::for_body(size))
        .disable_payload_signing()
        .send()
        .await
        .map_err(|error| store.mapped(Op::Upload, key, &error))?;
    Ok(CompletedPart::builder()
        .part_number(number)
        .set_e_tag(sent.e_tag)
        .set_checksum_crc32(sent.checksum_crc32)
        .build())
}

async fn complete(
    store: &S3Store,
    key: &str,
    id: &str,
    parts: Vec<CompletedPart>,
    size: usize,
) -> Result<Create, StoreError> {
    let list = CompletedMultipartUpload::builder()
        .set_parts(Some(parts))
        .build();
    let end = store
        .0
        .data
        .complete_multipart_upload()
        .bucket(&store.0.bucket)
        .key(store.full(key));
    let end = end
        .upload_id(id)
        .multipart_upload(list)
        .if_none_match("*")
        .customize();
    let Err(error) = end.config_override(config::for_body(size)).send().await else {
        return Ok(Create::Created);
    };
    if errors::status(&error) == Some(412) {
        return ours(store, key, size).await;
    }
    let error = store.mapped(Op::Upload, key, &error);
    match error.kind {
        // A repeated Complete succeeds on AWS and is NoSuchUpload elsewhere: check for the object.
        ErrorKind::NotFound => match ours(store, key, size).await {
            Err(absent) if absent.is_not_found() => Err(StoreError {
                kind: ErrorKind::Conflict,
                ..error
            }),
            found => found,
        },
        _ => Err(error),
    }
}

/// Aborts an upload whose Complete was never sent, as far as possible; the bucket's lifecycle rule removes
/// the rest.
async fn abort(store: &S3Store, key: &str, id: &str) {
    let abort = store
        .0
        .data
        .abort_multipart_upload()
        .bucket(&store.0.bucket)
        .key(store.full(key));
    if let Err(error) = abort.upload_id(id).send().await {
        tracing::debug!(
            key,
            error = crate::message::chain(&error),
            "cannot abort a failed upload; its parts stay"
        );
    }
}
