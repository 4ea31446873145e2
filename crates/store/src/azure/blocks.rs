//! Uploads in blocks: <https://learn.microsoft.com/rest/api/storageservices/put-block-list>. The list that makes the
//! object of its blocks is sent on condition that the object is absent.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;

use super::{Azure, absent};
use crate::cloud::{Answer, CloudStore, Request, encoded};
use crate::{Create, Effect, ErrorKind, Op, PendingUpload, StoreError};

const BLOCK_BYTES: usize = 16 << 20;
const BLOCKS_AT_ONCE: usize = 4;
/// The answer to a list with blocks that are gone: another upload has made the object.
const GONE: &str = "InvalidBlockList";

/// Returns the id of a block: Base64, and of one length for all blocks of an object. Hexadecimal digits are both.
pub(super) fn id(upload: u32, block: u32) -> String {
    format!("{upload:08x}{block:08x}")
}

/// Uploads a body in blocks.
pub(super) async fn upload(
    azure: &Azure,
    store: &CloudStore,
    key: &str,
    body: &Bytes,
) -> Result<Create, StoreError> {
    let upload = rand::random();
    let starts = (0..).zip((0..body.len()).step_by(BLOCK_BYTES));
    let sends = starts.map(|(block, start)| {
        let slice = body.slice(start..body.len().min(start + BLOCK_BYTES));
        async move {
            let id = id(upload, block);
            put(azure, store, Op::Upload, key, &id, slice).await?;
            Ok::<_, StoreError>(id)
        }
    });
    let ids: Vec<String> = stream::iter(sends)
        .buffered(BLOCKS_AT_ONCE)
        .try_collect()
        .await?;
    let request = || list(azure, &store.full(key), &ids);
    let accepts = |answer: &Answer| store.is_there(answer) || is_gone(store, answer);
    let answer = store.tried(Op::Upload, key, request, accepts).await?;
    if is_gone(store, &answer) {
        let why = "the blocks are gone: another try may have made the object";
        let (kind, effect) = (ErrorKind::Conflict, Effect::Unknown);
        return Err(store.error(Op::Upload, key, kind, effect, why));
    }
    store.created(Op::Upload, key, &answer)
}

fn is_gone(store: &CloudStore, answer: &Answer) -> bool {
    let refusal = store.0.dialect.refusal(&answer.headers, &answer.body);
    answer.status == 400 && refusal.code == GONE
}

/// Uploads one block of a future object.
pub(super) async fn put(
    azure: &Azure,
    store: &CloudStore,
    op: Op,
    key: &str,
    id: &str,
    block: Bytes,
) -> Result<(), StoreError> {
    let name = Azure::blob(&store.full(key));
    let rest = format!("{name}?comp=block&blockid={}", encoded(id));
    let request = || azure.request(Method::PUT, &rest, block.clone());
    store.answered(op, key, request).await.map(drop)
}

/// Sends the list of a single block once.
pub(super) async fn commit_once(
    azure: &Azure,
    store: &CloudStore,
    upload: &PendingUpload,
) -> Result<Create, StoreError> {
    let ids = std::slice::from_ref(&upload.id);
    let request = list(azure, &store.full(&upload.key), ids);
    let answer = store.once(Op::Upload, &upload.key, request).await?;
    // The winner's list has removed the blocks of all others.
    if is_gone(store, &answer) {
        return Ok(Create::Exists);
    }
    store.created(Op::Upload, &upload.key, &answer)
}

fn list(azure: &Azure, name: &str, ids: &[String]) -> Request {
    let latest = ids.join("</Latest><Latest>");
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Latest>{latest}</Latest></BlockList>"
    );
    let rest = format!("{}?comp=blocklist", Azure::blob(name));
    let mut request = azure.request(Method::PUT, &rest, body.into());
    absent(&mut request);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_base64_of_one_length() {
        for id in [id(0, 0), id(u32::MAX, 49_999)] {
            assert_eq!(id.len(), 16);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
}
