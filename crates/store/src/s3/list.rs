//! Listings. Keys are requested percent-encoded: XML cannot express every key of a shared bucket, and one
//! such key would make its whole page unreadable.

use std::time::SystemTime;

use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::operation::list_objects_v2::builders::ListObjectsV2FluentBuilder;
use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{EncodingType, Object};

use super::S3Store;
use crate::answer::{decoded, decoded_exactly};
use crate::key::Keys;
use crate::{Effect, ErrorKind, ListPage, ObjectMeta, Op, StoreError, key};

/// Lists one page of the objects whose keys begin with `prefix`.
pub(super) async fn page(
    store: &S3Store,
    prefix: &str,
    page: Option<String>,
) -> Result<ListPage, StoreError> {
    let list = request(store, prefix).set_continuation_token(page.clone());
    let answer = send(store, prefix, list).await?;
    let next = next_page(store, prefix, &answer, page.as_deref())?;
    Ok(ListPage {
        objects: objects(store, prefix, &answer)?,
        next,
    })
}

/// Lists one page of the objects below `prefix` whose keys are greater than `after`.
pub(super) async fn page_after(
    store: &S3Store,
    prefix: &str,
    after: &str,
) -> Result<ListPage, StoreError> {
    let list = request(store, prefix).start_after(store.full(after));
    let answer = send(store, prefix, list).await?;
    let last = answer.contents().last().and_then(Object::key);
    let next = last.filter(|_| answer.is_truncated() == Some(true));
    let encoded = answer.encoding_type() == Some(&EncodingType::Url);
    let next = next
        .map(|full| decoded(full, encoded))
        .and_then(|full| Some(full.strip_prefix(&store.0.prefix)?.to_owned()));
    if next.as_deref().is_some_and(|next| next <= after) {
        let detail = "a listing after a key names keys before it: the store does not list in order";
        return Err(broken(store, prefix, detail));
    }
    Ok(ListPage {
        objects: objects(store, prefix, &answer)?,
        next,
    })
}

/// Returns the names of the folders directly below `prefix`, sorted.
pub(super) async fn folders(store: &S3Store, prefix: &str) -> Result<Vec<String>, StoreError> {
    let (mut names, mut page) = (Vec::new(), None);
    loop {
        let list = request(store, prefix)
            .delimiter("/")
            .set_continuation_token(page.clone());
        let answer = send(store, prefix, list).await?;
        let encoded = answer.encoding_type() == Some(&EncodingType::Url);
        let full = store.full(prefix);
        names.extend(answer.common_prefixes().iter().filter_map(|folder| {
            let folder = decoded(folder.prefix()?, encoded);
            let name = folder.strip_prefix(&full)?.strip_suffix('/')?;
            key::fault_of(name).is_none().then(|| name.to_owned())
        }));
        page = next_page(store, prefix, &answer, page.as_deref())?;
        if page.is_none() {
            names.sort_unstable();
            return Ok(names);
        }
    }
}

fn request(store: &S3Store, prefix: &str) -> ListObjectsV2FluentBuilder {
    let list = store.0.data.list_objects_v2().bucket(&store.0.bucket);
    list.prefix(store.full(prefix))
        .encoding_type(EncodingType::Url)
}

async fn send(
    store: &S3Store,
    prefix: &str,
    list: ListObjectsV2FluentBuilder,
) -> Result<ListObjectsV2Output, StoreError> {
    let answer = list.send().await;
    answer.map_err(|error| match store.mapped(Op::List, prefix, &error) {
        // A prefix without objects is an empty page, so the bucket is missing.
        mapped if mapped.is_not_found() => StoreError {
            kind: ErrorKind::NoBucket,
            ..mapped
        },
        mapped => mapped,
    })
}

/// Returns the token of the next page, which is not that of this one.
fn next_page(
    store: &S3Store,
    prefix: &str,
    answer: &ListObjectsV2Output,
    page: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let next = answer
        .next_continuation_token()
        .filter(|_| answer.is_truncated() == Some(true));
    if next.is_some() && next == page {
        let detail = "endless listing: a page names itself as the next";
        return Err(broken(store, prefix, detail));
    }
    Ok(next.map(str::to_owned))
}

fn broken(store: &S3Store, prefix: &str, detail: &str) -> StoreError {
    let (kind, effect) = (ErrorKind::Contract, Effect::DidNot);
    store.error(Op::List, prefix, kind, effect, detail)
}

fn objects(
    store: &S3Store,
    prefix: &str,
    answer: &ListObjectsV2Output,
) -> Result<Vec<ObjectMeta>, StoreError> {
    let encoded = answer.encoding_type() == Some(&EncodingType::Url);
    let objects = answer.contents().iter();
    if store.0.keys == Keys::Ours {
        let ours = objects.filter_map(|object| relative(store, object, encoded));
        return Ok(ours.collect());
    }
    let (mut all, mut unreadable) = (Vec::new(), Vec::new());
    for object in objects {
        match foreign(store, object, encoded) {
            Ok(found) => all.extend(found),
            Err(Unreadable) => unreadable.push(object.key().unwrap_or_default()),
        }
    }
    let Some(first) = unreadable.first() else {
        return Ok(all);
    };
    let detail = format!(
        "{} keys on a page of the listing can't be read, first {first:?} (percent-encoded): they are not UTF-8, or \
         begin otherwise than asked for; rename them",
        unreadable.len()
    );
    Err(store.error(Op::List, prefix, ErrorKind::Invalid, Effect::DidNot, detail))
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
    let ours = key::fault_of(key).is_none();
    ours.then(|| described(object, key)).flatten()
}

/// A listed key that can't be read.
struct Unreadable;

/// Returns the object of any key; `None` for the marker of the listed folder itself, which has no name in it.
fn foreign(
    store: &S3Store,
    object: &Object,
    encoded: bool,
) -> Result<Option<ObjectMeta>, Unreadable> {
    let full = (object.key())
        .and_then(|key| decoded_exactly(key, encoded))
        .ok_or(Unreadable)?;
    let key = full.strip_prefix(&store.0.prefix).ok_or(Unreadable)?;
    let found = described(object, key).ok_or(Unreadable)?;
    if found.key.is_empty() && found.size == 0 {
        return Ok(None);
    }
    match key::foreign_fault(&found.key) {
        None => Ok(Some(found)),
        Some(_) => Err(Unreadable),
    }
}

fn described(object: &Object, key: &str) -> Option<ObjectMeta> {
    let size = u64::try_from(object.size()?).ok()?;
    let etag = object.e_tag().filter(|etag| etag.len() <= ETAG_BYTES_MAX);
    Some(ObjectMeta {
        key: key.to_owned(),
        size,
        etag: etag.map(str::to_owned),
        modified: modified(object.last_modified()),
    })
}
