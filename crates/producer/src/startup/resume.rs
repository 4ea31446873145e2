//! From a stored cursor back to the place in the input, or to the reason why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::Chain;
use batchweave_core::order::SamplerState;
use batchweave_log::{LogError, read_inputs};
use batchweave_store::Store;
use serde_json::{Map, Value};

use super::forms::{Forms, Names};
use super::settings::IGNORED_KEY;
use crate::config::NamedSource;
use crate::cursor::{AS_PYTHON, State};
use crate::error::RunError;
use crate::packing::Restart;
use crate::sources::{Format, InputList, PinnedFile, SourceError};
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
    /// The format of `[source]`.
    pub(super) format: Format,
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
    /// The settings of now, which later cursors keep.
    pub(super) settings: Map<String, Value>,
    /// The pieces that the cursor counts are of standard JSON alone.
    pub(super) strict_replay: bool,
}

impl Resume<'_> {
    /// Returns the place of `cursor` in the input that was `listed`; an error names every difference.
    pub(super) async fn check(
        &self,
        cursor: &Cursor,
        listed: InputList,
    ) -> Result<Resumed, RunError> {
        let forms = Forms {
            format: self.format,
            sources: self.sources,
        };
        let Some(mut state) = State::from_cursor(cursor, self.producer.as_str())? else {
            return Ok(Resumed {
                settings: forms.marked(self.settings, &listed),
                strict_replay: false,
                inputs: listed,
                chain: Chain::default(),
                from: Restart::default(),
                order: None,
                dialect: Dialect::default(),
            });
        };
        state.check_sources(!self.sources.is_empty(), self.producer.as_str())?;
        let (dialect, current) = self.in_dialect_of(&state);
        let mut settings = forms.marked(&current, &listed);
        let stored = read_inputs(self.store.as_ref(), self.producer, Some(state.inputs)).await;
        let (chain, pins) = stored.map_err(|why| match why {
            LogError::Store(why) if !why.is_not_found() => RunError::Store(why),
            why => SourceError::List(why.to_string()).into(),
        })?;
        let names = Names::of_settings(&state.settings);
        state.settings = forms.adopted(&state.settings, &current, &pins);
        state.check_settings(&current, self.producer.as_str())?;
        let inputs = match &state.order {
            None if self.follow => {
                let read = state.at.file as usize;
                changed(forms.differences(names, pins.iter().skip(read)))?;
                listed.resumed(pins, |n, _| n < read)?
            }
            None => {
                let mut differences = listed.differences(&pins);
                differences.extend(forms.differences(names, pins.iter()));
                changed(differences)?;
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
                let followed: BTreeSet<String> =
                    followed.map(|source| source.name.clone()).collect();
                let grows = |pin: &PinnedFile| {
                    let own = pin.source.as_ref();
                    own.is_some_and(|own| followed.contains(own))
                };
                let read = pins.iter().filter(|pin| !(grows(pin) && over(pin)));
                changed(forms.differences(names, read))?;
                listed.resumed_sources(pins, (&followed, &added), over)?
            }
        };
        let as_python = state.settings.get(AS_PYTHON);
        settings.extend(as_python.map(|value| (AS_PYTHON.to_owned(), value.clone())));
        let strict_replay = as_python.is_none() && !state.placed.is_empty();
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
            settings,
            strict_replay,
        })
    }

    /// Returns the dialect of a cursor's conversations, and the settings of now as they are named in it.
    fn in_dialect_of(&self, state: &State) -> (Dialect, Map<String, Value>) {
        let dialect = Dialect::of_cursor(&state.settings);
        let mut settings = self.settings.clone();
        if !settings.contains_key(DIALECT_KEY) || !dialect.is_earlier() {
            return (Dialect::default(), settings);
        }
        settings.remove(DIALECT_KEY);
        // That dialect read none of these keys.
        settings.remove(IGNORED_KEY);
        (dialect, settings)
    }
}

fn changed(differences: Vec<String>) -> Result<(), SourceError> {
    if differences.is_empty() {
        return Ok(());
    }
    Err(SourceError::Changed { differences })
}
