//! From a stored cursor back to the place in the input, or to the reason why there is none.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, ProducerName};
use batchweave_core::keys;
use batchweave_store::{Create, Effect, ErrorKind, Op, Store, StoreError};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::cursor::State;
use crate::error::RunError;
use crate::packing::Restart;
use crate::sources::{InputList, SourceError};

const TRIES: usize = 8;

/// What a cursor is compared with.
pub(crate) struct Resume<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) producer: &'a ProducerName,
    pub(crate) inputs: &'a InputList,
    pub(crate) settings: &'a Map<String, Value>,
    /// The list that `inputs` has grown from: as good as its own.
    pub(crate) grown_from: Option<Hash>,
}

impl Resume<'_> {
    /// Where the cursor stands in this input; an error names every difference.
    pub(crate) async fn check(&self, cursor: &Cursor) -> Result<Restart, RunError> {
        let Some(state) = State::from_cursor(cursor, self.producer.as_str())? else {
            return Ok(Restart::default());
        };
        state.check_settings(self.settings, self.producer.as_str())?;
        if state.inputs == self.hash() || self.grown_from == Some(state.inputs) {
            return Ok(Restart {
                at: state.at,
                placed: state.placed,
            });
        }
        let key = keys::inputs(self.producer, state.inputs);
        let differences = match self.store.get(&key, keys::bytes_max(&key)).await {
            Ok(bytes) => match InputList::pins_from_json(&bytes) {
                Ok(pins) => self.inputs.differences(&pins),
                Err(e) => vec![format!("the stored list of input files can't be read: {e}")],
            },
            Err(e) if e.is_not_found() => {
                vec![format!("the stored list of input files is missing: {e}")]
            }
            Err(e) => return Err(e.into()),
        };
        Err(SourceError::Changed { differences }.into())
    }

    fn hash(&self) -> Hash {
        Hash::of(self.inputs.to_json().as_bytes())
    }

    /// Stores the input list under its hash, so that a later difference can be told file by file.
    pub(crate) async fn pin(&self) -> Result<Hash, RunError> {
        pin(self.store, self.producer, self.inputs).await
    }
}

/// Stores `list` under its hash.
pub(crate) async fn pin(
    store: &Arc<dyn Store>,
    producer: &ProducerName,
    list: &InputList,
) -> Result<Hash, RunError> {
    let json = Bytes::from(list.to_json());
    let hash = Hash::of(&json);
    let key = keys::inputs(producer, hash);
    for _ in 1..TRIES {
        match store.create(&key, json.clone()).await {
            // Whoever stored it before stored these bytes: the key is their hash.
            Ok(Create::Created | Create::Exists) => return Ok(hash),
            Err(e) if e.kind.is_transient() => {
                tracing::warn!(error = %e, "storing the input list again");
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
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
