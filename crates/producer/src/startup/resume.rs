//! From a stored cursor back to the place in the input, or to the reason why there is none.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::Chain;
use batchweave_core::order::SamplerState;
use batchweave_log::{LogError, read_inputs};
use batchweave_store::Store;
use serde_json::{Map, Value};

use crate::config::NamedSource;
use crate::cursor::State;
use crate::error::RunError;
use crate::packing::Restart;
use crate::sources::{InputList, PinnedFile, SourceError};
use crate::transform::chat::{DIALECT_KEY, Dialect};

/// The producer, settings and input that a stored cursor must agree with.
pub(super) struct Resume<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) producer: &'a ProducerName,
    pub(super) settings: &'a Map<String, Value>,
    /// Whether the input may have grown (`source.follow`).
    pub(super) follow: bool,
    /// The sources of the configuration; empty for the one of `[source]`.
    pub(super) sources: &'a [NamedSource],
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
    /// The rules by which the producer's conversations became tokens so far.
    pub(super) dialect: Dialect,
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
                dialect: Dialect::default(),
            });
        };
        state.check_sources(!self.sources.is_empty(), self.producer.as_str())?;
        let (dialect, mut settings) = (Dialect::of_cursor(&state.settings), self.settings.clone());
        if dialect.is_earlier() {
            settings.remove(DIALECT_KEY);
        }
        state.check_settings(&settings, self.producer.as_str())?;
        let stored = read_inputs(self.store.as_ref(), self.producer, Some(state.inputs)).await;
        let (chain, pins) = stored.map_err(|why| match why {
            LogError::Store(why) if !why.is_not_found() => RunError::Store(why),
            why => SourceError::List(why.to_string()).into(),
        })?;
        let inputs = match &state.order {
            None if self.follow => {
                let read = state.at.file as usize;
                listed.resumed(pins, |n, _| n < read)?
            }
            None => {
                let differences = listed.differences(&pins);
                if !differences.is_empty() {
                    return Err(SourceError::Changed { differences }.into());
                }
                listed
            }
            Some(order) => {
                let added = state.new_sources(self.settings);
                let passes: BTreeMap<&str, u64> = (self.sources.iter().zip(&order.at))
                    .map(|(source, state)| (source.name.as_str(), state.position.pass))
                    .collect();
                let over = |pin: &PinnedFile| {
                    let pass = pin.source.as_deref().and_then(|own| passes.get(own));
                    pass.is_some_and(|pass| pin.growth < *pass)
                };
                let followed = self.sources.iter().filter(|source| source.grows());
                let followed = followed.map(|source| source.name.clone()).collect();
                listed.resumed_sources(pins, (&followed, &added), over)?
            }
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
            dialect,
        })
    }
}
