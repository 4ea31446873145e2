//! Uploads of data objects: one request, or parts for large bodies. Keys are unique, so an existing object of the same
//! size is the result of an earlier try.

use std::time::Duration;

use bytes::Bytes;

use super::CloudStore;
use crate::{Backoff, Create, Effect, ErrorKind, Op, Store, StoreError};

/// Bodies above this size are uploaded in parts.
pub(crate) const PARTS_ABOVE_BYTES: usize = 32 << 20;
/// Tries of a whole upload after a conflict or the loss of its parts.
const TRIES: u32 = 3;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(200));

pub(super) async fn upload(
    store: &CloudStore,
    key: &str,
    body: Bytes,
) -> Result<Create, StoreError> {
    let (mut tries, mut backoff) = (1, BACKOFF);
    loop {
        let uploaded = if body.len() > PARTS_ABOVE_BYTES {
            store.0.dialect.upload_in_parts(store, key, &body).await
        } else {
            put(store, key, &body).await
        };
        let outcome = match uploaded {
            Ok(Create::Exists) => ours(store, key, body.len()).await,
            outcome => outcome,
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

async fn put(store: &CloudStore, key: &str, body: &Bytes) -> Result<Create, StoreError> {
    let name = store.full(key);
    let create = || store.0.dialect.create(&name, body.clone());
    let accepts = |answer: &super::Answer| store.is_there(answer);
    let answer = store.tried(Op::Upload, key, create, accepts).await?;
    store.created(Op::Upload, key, &answer)
}

/// Checks by its size whether the object under our unique key is ours.
async fn ours(store: &CloudStore, key: &str, size: usize) -> Result<Create, StoreError> {
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
