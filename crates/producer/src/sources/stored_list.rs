//! The input list as the producer stores it beside the log, where cursors name it: a chain of links.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Epoch, Nonce, ProducerName};
use batchweave_core::inputs::{Chain, LinkId, NewLink};
use batchweave_core::keys;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::InputList;

const TRIES: usize = 8;
const PAUSE: Duration = Duration::from_millis(500);
/// Number of links that are stored at the same time.
const PUTS_AT_ONCE: usize = 4;

/// Stores the links that extend `chain` to `list` and returns the new head, which cursors name. `chain` is left as
/// it was when this fails.
pub(crate) async fn store_list(
    store: &Arc<dyn Store>,
    producer: &ProducerName,
    opening: (Epoch, Nonce),
    chain: &mut Chain,
    list: &InputList,
) -> Result<LinkId, StoreError> {
    let mut grown = chain.clone();
    let (head, links) = grown.grow(opening, &list.files);
    let puts = stream::iter(links).map(|link| put(store, producer, link));
    puts.buffer_unordered(PUTS_AT_ONCE)
        .try_collect::<()>()
        .await?;
    *chain = grown;
    Ok(head)
}

async fn put(
    store: &Arc<dyn Store>,
    producer: &ProducerName,
    (id, bytes): NewLink,
) -> Result<(), StoreError> {
    let (key, bytes) = (keys::inputs(producer, &id), Bytes::from(bytes));
    for _ in 1..TRIES {
        match store.create(&key, bytes.clone()).await {
            // An object that exists is from an earlier try: the key names this opening and the bytes.
            Ok(Create::Created | Create::Exists) => return Ok(()),
            Err(e) if e.kind.is_transient() => {
                tracing::warn!(error = %e, "cannot store the input list; retrying");
                tokio::time::sleep(PAUSE).await;
            }
            Err(e) => return Err(e),
        }
    }
    let detail = format!("the input list could not be stored in {TRIES} tries");
    let location = format!("{}/{key}", store.root());
    Err(StoreError {
        op: Op::Create,
        location,
        kind: ErrorKind::Timeout,
        effect: Effect::Unknown,
        detail,
    })
}
