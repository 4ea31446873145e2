//! From a stored cursor back to the place in the input, or to the reason why there is none.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::Chain;
use batchweave_core::order::SamplerState;
use batchweave_log::{LogError, read_inputs};
use batchweave_store::Store;
use serde_json::{Map, Value};

use crate::cursor::State;
use crate::error::RunError;
use crate::packing::Restart;
use crate::sources::{InputList, SourceError};

/// The producer, settings and input that a stored cursor must agree with.
pub(super) struct Resume<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) producer: &'a ProducerName,
    pub(super) settings: &'a Map<String, Value>,
    /// Whether the input may have grown (`source.follow`).
    pub(super) follow: bool,
    /// Whether the configuration has several sources.
    pub(super) several: bool,
}

/// The place where a producer continues.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) inputs: InputList,
    /// The stored list that the cursor counts in: `inputs`, or its beginning when it has grown.
    pub(super) chain: Chain,
    pub(super) from: Restart,
    /// Of several sources: the sampler's state, if it is not at its start.
    pub(super) order: Option<SamplerState>,
}

impl Resume<'_> {
    /// Returns the place of `cursor` in the input that was `listed`; an error names every difference.
    pub(super) async fn check(
        &self,
        cursor: &Cursor,
        listed: InputList,
    ) -> Result<Resumed, RunError> {
        let Some(state) = State::from_cursor(cursor, self.producer.as_str())? else {
            return Ok(Resumed {
                inputs: listed,
                chain: Chain::default(),
                from: Restart::default(),
                order: None,
            });
        };
        state.check_sources(self.several, self.producer.as_str())?;
        state.check_settings(self.settings, self.producer.as_str())?;
        let stored = read_inputs(self.store.as_ref(), self.producer, Some(state.inputs)).await;
        let (chain, pins) = stored.map_err(|why| match why {
            LogError::Store(why) if !why.is_not_found() => RunError::Store(why),
            why => SourceError::List(why.to_string()).into(),
        })?;
        let inputs = if self.follow {
            listed.resumed(pins, state.at.file)?
        } else {
            let added = state.new_sources(self.settings);
            let differences = listed.without(&added).differences(&pins);
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
            order: state.order,
        })
    }
}
