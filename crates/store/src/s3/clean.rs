//! Bulk deletion, and abandoned uploads.

use aws_sdk_s3::operation::list_multipart_uploads::ListMultipartUploadsOutput;
use aws_sdk_s3::types::{Delete, EncodingType, Error as Refused, ObjectIdentifier};
use futures::{StreamExt, stream};

use super::{S3Store, errors};
use crate::answer::decoded;
use crate::{Effect, ErrorKind, Op, PendingUpload, Store, StoreError, key};

/// S3's limit of keys per bulk deletion.
const KEYS_PER_REQUEST: usize = 1000;
/// Concurrent single deletes, where a store has no bulk delete.
const SINGLES_AT_ONCE: usize = 16;
/// Most pages of a listing of uploads; the rest is found by a later call, once these are gone.
const UPLOAD_PAGES: usize = 10;

type Refusals = Vec<(String, StoreError)>;

pub(super) async fn delete_many(store: &S3Store, keys: &[String]) -> Result<Refusals, StoreError> {
    for key in keys {
        key::check(Op::Delete, &store.0.root, key)?;
    }
    let mut refused = Vec::new();
    for some in keys.chunks(KEYS_PER_REQUEST) {
        refused.extend(delete_some(store, some).await?);
    }
    Ok(refused)
}

async fn delete_some(store: &S3Store, keys: &[String]) -> Result<Refusals, StoreError> {
    let built = |error: aws_sdk_s3::error::BuildError| {
        let detail = crate::message::chain(&error);
        store.error(Op::Delete, "", ErrorKind::Other, Effect::DidNot, detail)
    };
    let mut delete = Delete::builder().quiet(true);
    for key in keys {
        let object = ObjectIdentifier::builder().key(store.full(key)).build();
        delete = delete.objects(object.map_err(built)?);
    }
    let request = store.0.data.delete_objects().bucket(&store.0.bucket);
    let sent = request.delete(delete.build().map_err(built)?).send().await;
    match sent {
        Ok(answer) => {
            let refused = answer.errors().iter();
            Ok(refused.filter_map(|error| refusal(store, error)).collect())
        }
        // Not every store supports bulk deletion.
        Err(error) if matches!(errors::status(&error), Some(405 | 501)) => {
            Ok(one_by_one(store, keys).await)
        }
        Err(error) => {
            let first = keys.first().map_or("", String::as_str);
            Err(store.mapped(Op::Delete, first, &error))
        }
    }
}

/// Returns the error of one key; `None` when it does not exist anyway.
fn refusal(store: &S3Store, error: &Refused) -> Option<(String, StoreError)> {
    let full = error.key().unwrap_or_default();
    let key = full.strip_prefix(&store.0.prefix).unwrap_or(full);
    let fault = errors::from_code(Op::Delete, error.code(), error.message());
    if fault.kind == ErrorKind::NotFound {
        return None;
    }
    let error = store.error(Op::Delete, key, fault.kind, fault.effect, fault.detail);
    Some((key.to_owned(), error))
}

async fn one_by_one(store: &S3Store, keys: &[String]) -> Refusals {
    let deletes = keys.iter().cloned().map(|key| async move {
        let error = store.delete(&key).await.err()?;
        Some((key, error))
    });
    let answers = stream::iter(deletes).buffered(SINGLES_AT_ONCE);
    answers.filter_map(std::future::ready).collect().await
}

pub(super) async fn unfinished(
    store: &S3Store,
    prefix: &str,
) -> Result<Vec<PendingUpload>, StoreError> {
    key::check_prefix(Op::List, &store.0.root, prefix)?;
    let (mut found, mut after) = (Vec::new(), (None, None));
    for _ in 0..UPLOAD_PAGES {
        let list = store
            .0
            .data
            .list_multipart_uploads()
            .bucket(&store.0.bucket)
            .prefix(store.full(prefix))
            .set_key_marker(after.0)
            .set_upload_id_marker(after.1)
            .encoding_type(EncodingType::Url);
        let request = format!("{prefix}?uploads");
        let page = match list.send().await {
            Ok(page) => page,
            Err(error) => match store.mapped(Op::List, &request, &error) {
                // Some stores answer 404 while there are no uploads, or never support the listing.
                none if none.is_not_found() => break,
                error => return Err(error),
            },
        };
        found.extend(uploads(store, &page));
        if page.is_truncated() != Some(true) {
            break;
        }
        let encoded = page.encoding_type() == Some(&EncodingType::Url);
        let next = page.next_key_marker.map(|key| decoded(&key, encoded));
        after = (next, page.next_upload_id_marker);
    }
    Ok(found)
}

fn uploads(
    store: &S3Store,
    page: &ListMultipartUploadsOutput,
) -> impl Iterator<Item = PendingUpload> {
    let encoded = page.encoding_type() == Some(&EncodingType::Url);
    page.uploads().iter().filter_map(move |upload| {
        let key = decoded(upload.key()?, encoded);
        Some(PendingUpload {
            key: key.strip_prefix(&store.0.prefix)?.to_owned(),
            id: upload.upload_id()?.to_owned(),
            ..PendingUpload::default()
        })
    })
}
