//! The sampler: from sources, a mixture and a small state to the source of the next document. It is told what each
//! document had, since only its tokens say which source is next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cursor::{Position, SamplerState, SourceState};
use super::mixture::{self, Candidate, ShareUnit, Weight};
use crate::guards;
use crate::limits::NUMBER_MAX;

/// The pass of a source that repeats for ever and has no document.
pub const PASS_OF_EMPTY: u64 = NUMBER_MAX - 1;

/// The reaction to a source with a weight that has given all of its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenSourceEnds {
    /// The others go on in their shares, those that repeat for ever without end.
    GoOn,
    /// The run ends with it.
    Finish,
    /// The others go on in their shares, and the run ends with the last one that does not repeat for ever.
    #[default]
    Last,
}

/// The end of a run, counted from its start over all sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Documents(u64),
    Tokens(u64),
}

/// The rules of a sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerOptions {
    /// The weights of the configuration, which are those of mixture 0.
    pub weights: Vec<Weight>,
    /// The weights of later mixtures, by number.
    pub mixtures: BTreeMap<u64, Vec<Weight>>,
    /// The passes of each source; 0 repeats it for ever.
    pub passes: Vec<u64>,
    pub unit: ShareUnit,
    pub when_source_ends: WhenSourceEnds,
    pub limit: Option<Limit>,
}

/// Selects the source of each document.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    /// The weights in force.
    weights: Vec<Weight>,
    state: SamplerState,
}

impl Sampler {
    /// Returns a sampler that continues at `state`; sources that the state lacks begin at their start. A mixture of the
    /// state that `options` lacks has the weights of the configuration, so callers check it.
    pub fn new(options: SamplerOptions, mut state: SamplerState) -> Self {
        state
            .at
            .resize(options.weights.len(), SourceState::default());
        if guards::forgets_given() {
            state.at.iter_mut().for_each(|source| source.given = 0);
        }
        let weights = options.weights.clone();
        let mut sampler = Self {
            options,
            weights,
            state,
        };
        sampler.weights = sampler.weights_of(sampler.state.mix);
        sampler.hold_ended();
        sampler.apply_next();
        sampler
    }

    /// Holds sources that had ended where the state is, for the documents that were taken after it. States of earlier
    /// releases do not say by which passes these were taken.
    fn hold_ended(&mut self) {
        let state = &mut self.state;
        if guards::raises_passes_at_once() {
            state.passes.clear();
            return;
        }
        if !state.passes.is_empty() || state.ahead == 0 {
            return;
        }
        let mut passes = self.options.passes.clone();
        passes.resize(state.at.len(), 1);
        for (passes, source) in passes.iter_mut().zip(&state.at) {
            let gave = source.position.pass;
            if source.position.begins_pass() && gave > 0 && gave != PASS_OF_EMPTY {
                *passes = gave;
            }
        }
        if passes != self.options.passes {
            state.passes = vec![(state.total[0] + state.ahead, passes)];
        }
    }

    fn weights_of(&self, mixture: u64) -> Vec<Weight> {
        let set = self.options.mixtures.get(&mixture);
        set.unwrap_or(&self.options.weights).clone()
    }

    /// Returns the state before the next document, from which another sampler continues.
    pub fn state(&self) -> &SamplerState {
        &self.state
    }

    /// Returns the source of the next document; `None` when the run is over.
    pub fn next(&self) -> Option<usize> {
        let [documents, tokens] = self.state.total;
        let over = match self.options.limit {
            Some(Limit::Documents(most)) => documents >= most,
            Some(Limit::Tokens(most)) => tokens >= most,
            None => false,
        };
        let finish = match self.options.when_source_ends {
            WhenSourceEnds::GoOn => false,
            WhenSourceEnds::Finish => self.weighted().any(|n| self.has_ended(n)),
            WhenSourceEnds::Last => self.only_endless_left(),
        };
        if over || finish {
            return None;
        }
        mixture::next((0..self.weights.len()).map(|n| self.candidate(n)))
    }

    /// Returns whether all sources that have a weight and an end have ended, if there are any.
    pub fn only_endless_left(&self) -> bool {
        let mut finite = self.weighted().filter(|n| self.passes(*n) > 0).peekable();
        finite.peek().is_some() && finite.all(|n| self.has_ended(n))
    }

    /// Returns the passes of a source: those by which the next document was taken before, or those of the configuration.
    fn passes(&self, source: usize) -> u64 {
        let stored = self
            .state
            .passes
            .first()
            .and_then(|(_, passes)| passes.get(source));
        let configured = self.options.passes.get(source);
        stored.or(configured).copied().unwrap_or(1)
    }

    /// Returns whether the documents of `pass` of a source wait: its passes were fewer when the next document was taken
    /// before.
    pub fn holds(&self, source: usize, pass: u64) -> bool {
        let passes = self.passes(source);
        passes > 0 && pass >= passes
    }

    fn candidate(&self, source: usize) -> Candidate {
        Candidate {
            weight: self.weights[source],
            given: self.state.at[source].given,
            ended: self.has_ended(source),
        }
    }

    fn weighted(&self) -> impl Iterator<Item = usize> {
        let weights = self.weights.iter().enumerate();
        weights.filter_map(|(n, weight)| (*weight > Weight::ZERO).then_some(n))
    }

    fn has_ended(&self, source: usize) -> bool {
        let passes = self.passes(source);
        let pass = self.state.at[source].position.pass;
        pass >= if passes == 0 { PASS_OF_EMPTY } else { passes }
    }

    /// Counts a document of `source` with this number of tokens, behind which the source is at `after`. A unit without a
    /// document, as a bad one, has no tokens and counts as no document.
    pub fn give(&mut self, source: usize, after: Position, document: Option<u64>) {
        let state = &mut self.state.at[source];
        state.position = after;
        let Some(tokens) = document else { return };
        state.given += match self.options.unit {
            ShareUnit::Tokens => tokens,
            ShareUnit::Documents => 1,
        };
        self.state.total[0] += 1;
        self.state.total[1] += tokens;
        self.apply_next();
    }

    /// Puts the mixtures and passes in force that the state has for this place.
    fn apply_next(&mut self) {
        let taken = self.state.total[0];
        self.state.passes.retain(|(until, _)| taken < *until);
        while let Some((id, documents)) = self.state.next.first().copied()
            && documents <= self.state.total[0]
        {
            self.state.next.remove(0);
            self.change(id);
        }
    }

    /// Declares that `source` has no more documents.
    pub fn end(&mut self, source: usize) {
        let passes = self.passes(source);
        let pass = if passes == 0 { PASS_OF_EMPTY } else { passes };
        self.state.at[source].position = Position::pass(pass);
    }

    /// Adds the weights of a mixture that is still to be put in force.
    pub fn learn(&mut self, id: u64, weights: Vec<Weight>) {
        self.options.mixtures.insert(id, weights);
    }

    /// Puts the mixture number `id` in force: amounts are counted from nothing again. One that is in force already,
    /// or an older one, changes nothing.
    pub fn change(&mut self, id: u64) {
        if guards::ignores_mixture() || id <= self.state.mix && !guards::repeats_mixture() {
            return;
        }
        self.state.mix = id;
        self.state.at.iter_mut().for_each(|source| source.given = 0);
        self.weights = self.weights_of(id);
    }
}
