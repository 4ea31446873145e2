//! From a stored cursor back to the place in the input, or to the reason why there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::{Chain, LinkId};
use batchweave_core::manifest::state::ProducerState;
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
use crate::sources::{InputList, PinnedFile, SourceError};
use crate::transform::chat::{DIALECT_KEY, Dialect};

/// The producer, settings and input that a stored cursor must agree with.
pub(super) struct Resume<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) producer: &'a ProducerName,
    pub(super) settings: &'a Map<String, Value>,
    /// The sources; without names for the one of `[source]`.
    pub(super) sources: &'a [NamedSource],
}

/// The place of a producer in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    cursor: Cursor,
    /// Of a fork, until its first commit: the list that the cursor counts in.
    list: Option<LinkId>,
}

impl Place {
    pub(super) fn of(state: Option<&ProducerState>) -> Self {
        let list = |p: &ProducerState| p.again.as_ref().and_then(|again| again.inputs);
        Self {
            cursor: state.map(|p| p.cursor.clone()).unwrap_or_default(),
            list: state.and_then(list),
        }
    }
}

/// The place where a producer continues.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) inputs: InputList,
    /// The stored list that the cursor counts in: `inputs`, or its beginning when it has grown.
    pub(super) chain: Chain,
    pub(super) from: Restart,
    /// Of sources with names: the sampler's state, if it is not at its start.
    pub(super) order: Option<SamplerState>,
    /// The first source is read in the order of its files.
    pub(super) file_order: bool,
    /// The rules by which the producer's conversations became tokens so far.
    pub(super) dialect: Dialect,
    /// The settings of now, which later cursors keep.
    pub(super) settings: Map<String, Value>,
    /// The pieces that the cursor counts are of standard JSON alone.
    pub(super) strict_replay: bool,
}

impl Resume<'_> {
    /// Returns the place of a cursor in the input that was `listed`; an error names every difference.
    pub(super) async fn check(
        &self,
        place: &Place,
        listed: InputList,
    ) -> Result<Resumed, RunError> {
        let forms = self.forms();
        let Some(mut state) = State::from_cursor(&place.cursor, self.producer.as_str())? else {
            return match place.list {
                Some(list) => self.at_start_of(&forms, list, listed).await,
                None => Ok(self.at_start(&forms, listed)),
            };
        };
        state.inputs = place.list.unwrap_or(state.inputs);
        let (dialect, mut current) = self.in_dialect_of(&state);
        let file_order = state.is_in_file_order(0);
        let (chain, pins) = self.stored_inputs(state.inputs).await?;
        let names = Names::of_settings(&state.settings);
        state.adopt(&mut current);
        let added = state.new_sources(&current);
        state.settings = forms.adopted(&state.settings, &current, &pins);
        state.check_settings(&current, self.producer.as_str())?;
        let mut settings = forms.marked(&current, &listed);
        let inputs = self.continued(listed, pins, &state, (names, &added))?;
        let as_python = state.settings.get(AS_PYTHON);
        settings.extend(as_python.map(|value| (AS_PYTHON.to_owned(), value.clone())));
        let strict_replay = as_python.is_none() && !state.placed.is_empty();
        let from = Restart {
            at: state.at,
            placed: state.placed,
            carried: state.carried,
            window: state.window,
        };
        Ok(Resumed {
            inputs,
            chain,
            from,
            order: state.order,
            file_order,
            dialect,
            settings,
            strict_replay,
        })
    }

    /// Returns the place of a producer that has committed nothing.
    fn at_start(&self, forms: &Forms<'_>, listed: InputList) -> Resumed {
        Resumed {
            settings: forms.marked(self.settings, &listed),
            strict_replay: false,
            inputs: listed,
            chain: Chain::default(),
            from: Restart::default(),
            order: None,
            file_order: self.sources[0].name.is_empty(),
            dialect: Dialect::default(),
        }
    }

    /// Returns the place of a producer of a fork that begins anew, with a list that its parent has stored.
    async fn at_start_of(
        &self,
        forms: &Forms<'_>,
        list: LinkId,
        listed: InputList,
    ) -> Result<Resumed, RunError> {
        let (chain, pins) = self.stored_inputs(list).await?;
        let none = BTreeSet::new();
        let inputs =
            listed.resumed_sources(pins, (&self.followed(), &none), |_, _| false, Vec::new())?;
        Ok(Resumed {
            chain,
            ..self.at_start(forms, inputs)
        })
    }

    /// Reads the stored list of this name. Its files are of the first source where they name none.
    async fn stored_inputs(&self, name: LinkId) -> Result<(Chain, Vec<PinnedFile>), RunError> {
        let stored = read_inputs(self.store.as_ref(), self.producer, Some(name)).await;
        let (chain, mut pins) = stored.map_err(|why| match why {
            LogError::Store(why) if !why.is_not_found() => RunError::Store(why),
            why => SourceError::List(why.to_string()).into(),
        })?;
        for pin in pins.iter_mut().filter(|pin| pin.source.is_none()) {
            pin.source = self.sources[0].pin_name().map(str::to_owned);
        }
        Ok((chain, pins))
    }

    /// Returns the listed input behind the stored files `pins`. An error names the files that are read otherwise than when
    /// `state` was stored, by `names`. The sources `added` are new since then.
    fn continued(
        &self,
        listed: InputList,
        pins: Vec<PinnedFile>,
        state: &State,
        (names, added): (Names, &BTreeSet<String>),
    ) -> Result<InputList, SourceError> {
        let forms = self.forms();
        let followed = self.followed();
        let over = |n: usize, pin: &PinnedFile| self.is_over(state, n, pin);
        let grows = |pin: &PinnedFile| followed.contains(pin.source.as_deref().unwrap_or_default());
        let numbered = pins.iter().enumerate();
        let read = numbered.filter(|(n, pin)| !(grows(pin) && over(*n, pin)));
        let differences = forms.differences(names, read.map(|(_, pin)| pin));
        listed.resumed_sources(pins, (&followed, added), over, differences)
    }

    fn forms(&self) -> Forms<'_> {
        Forms {
            sources: self.sources,
        }
    }

    /// Returns the names of the sources that grow.
    fn followed(&self) -> BTreeSet<String> {
        let followed = self.sources.iter().filter(|source| source.grows());
        followed.map(|source| source.name.clone()).collect()
    }

    /// Returns whether all of file `n` of a source that grows is in batches before `state`.
    fn is_over(&self, state: &State, n: usize, pin: &PinnedFile) -> bool {
        let own = pin.source.as_deref().unwrap_or_default();
        let source = self.sources.iter().position(|source| source.name == own);
        match (source, state.file_position(), &state.order) {
            (Some(0), Some(at), _) => (n as u64) < at.group,
            (Some(source), _, Some(order)) => {
                let at = order.at.get(source);
                at.is_some_and(|at| pin.growth < at.position.pass)
            }
            _ => false,
        }
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
