//! From a stored cursor back to the place in the input, or to the reason why there is none.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Nonce, ProducerName};
use batchweave_core::inputs::{Chain, LinkId, NewLink};
use batchweave_core::keys;
use batchweave_log::{LogError, read_inputs};
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use crate::cursor::State;
use crate::error::RunError;
use crate::packing::Restart;
use crate::sources::{InputList, SourceError};

const TRIES: usize = 8;
const PAUSE: Duration = Duration::from_millis(500);
/// Links stored at the same time.
const PUTS_AT_ONCE: usize = 4;

/// What a cursor is compared with.
pub(crate) struct Resume<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) producer: &'a ProducerName,
    pub(crate) settings: &'a Map<String, Value>,
    /// Whether the input may have grown.
    pub(crate) follow: bool,
}

/// Where a producer goes on.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) inputs: InputList,
    /// The list that the cursor counts in: `inputs`, or what it has grown from.
    pub(crate) chain: Chain,
    pub(crate) from: Restart,
}

impl Resume<'_> {
    /// Where the cursor stands in the input that was `listed`; an error names every difference.
    pub(crate) async fn check(
        &self,
        cursor: &Cursor,
        listed: InputList,
    ) -> Result<Resumed, RunError> {
        let Some(state) = State::from_cursor(cursor, self.producer.as_str())? else {
            return Ok(Resumed {
                inputs: listed,
                chain: Chain::default(),
                from: Restart::default(),
            });
        };
        state.check_settings(self.settings, self.producer.as_str())?;
        let stored = read_inputs(self.store.as_ref(), self.producer, Some(state.inputs)).await;
        let (chain, pins) = stored.map_err(|why| match why {
            LogError::Store(why) if !why.is_not_found() => RunError::Store(why),
            why => SourceError::List(why.to_string()).into(),
        })?;
        let inputs = if self.follow {
            listed.resumed(pins, state.at.file)?
        } else {
            let differences = listed.differences(&pins);
            if !differences.is_empty() {
                return Err(SourceError::Changed { differences }.into());
            }
            listed
        };
        let from = Restart {
            at: state.at,
            placed: state.placed,
        };
        Ok(Resumed {
            inputs,
            chain,
            from,
        })
    }
}

/// Stores what `list` has beyond `chain`, which goes on to it; the head, for cursors to name.
pub(crate) async fn store_list(
    store: &Arc<dyn Store>,
    producer: &ProducerName,
    opening: (Epoch, Nonce),
    chain: &mut Chain,
    list: &InputList,
) -> Result<LinkId, RunError> {
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
) -> Result<(), RunError> {
    let (key, bytes) = (keys::inputs(producer, &id), Bytes::from(bytes));
    for _ in 1..TRIES {
        match store.create(&key, bytes.clone()).await {
            // An object that exists is ours, by an earlier try: the key names this opening and the bytes.
            Ok(Create::Created | Create::Exists) => return Ok(()),
            Err(e) if e.kind.is_transient() => {
                tracing::warn!(error = %e, "storing the input list again");
                tokio::time::sleep(PAUSE).await;
            }
            Err(e) => return Err(e.into()),
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
    }
    .into())
}
