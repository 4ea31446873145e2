//! Listings. Keys are requested percent-encoded: XML cannot express every key of a shared bucket, and one
//! such key would make its whole page unreadable.

use std::time::SystemTime;

use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{EncodingType, Object};

use super::S3Store;
use crate::answer::decoded;
use crate::{Effect, ErrorKind, ListPage, ObjectMeta, Op, StoreError, key};

/// Lists one page of the objects whose keys begin with `prefix`.
pub(super) async fn page(
    store: &S3Store,
    prefix: &str,
    page: Option<String>,
) -> Result<ListPage, StoreError> {
    let list = store.0.data.list_objects_v2().bucket(&store.0.bucket);
    let answer = list
        .prefix(store.full(prefix))
        .encoding_type(EncodingType::Url)
        .set_continuation_token(page.clone())
        .send()
        .await
        .map_err(|error| match store.mapped(Op::List, prefix, &error) {
            // A prefix without objects is an empty page, so the bucket is missing.
            mapped if mapped.is_not_found() => StoreError {
                kind: ErrorKind::NoBucket,
                ..mapped
            },
            mapped => mapped,
        })?;
    let next = answer.next_continuation_token();
    let next = next.filter(|_| answer.is_truncated() == Some(true));
    if next.is_some() && next == page.as_deref() {
        let detail = "endless listing: a page names itself as the next";
        let (kind, effect) = (ErrorKind::Contract, Effect::DidNot);
        return Err(store.error(Op::List, prefix, kind, effect, detail));
    }
    let encoded = answer.encoding_type() == Some(&EncodingType::Url);
    let objects = answer.contents().iter();
    Ok(ListPage {
        objects: objects
            .filter_map(|object| relative(store, object, encoded))
            .collect(),
        next: next.map(str::to_owned),
    })
}

/// Returns the time of an answer, if it is one that this machine can represent.
pub(super) fn modified(time: Option<&DateTime>) -> Option<SystemTime> {
    SystemTime::try_from(*time?).ok()
}

/// Most bytes of an entity tag; a digest and a number of parts take fewer.
const ETAG_BYTES_MAX: usize = 256;

/// Returns the object with its key below the root; `None` for keys that are not ours (folder markers).
fn relative(store: &S3Store, object: &Object, encoded: bool) -> Option<ObjectMeta> {
    let full = decoded(object.key()?, encoded);
    let key = full.strip_prefix(&store.0.prefix)?;
    let size = u64::try_from(object.size()?).ok()?;
    let etag = object.e_tag().filter(|etag| etag.len() <= ETAG_BYTES_MAX);
    key::fault_of(key).is_none().then(|| ObjectMeta {
        key: key.to_owned(),
        size,
        etag: etag.map(str::to_owned),
        modified: modified(object.last_modified()),
    })
}
