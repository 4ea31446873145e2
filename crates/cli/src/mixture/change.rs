//! The effect of a change of the mixture on each producer.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::order::{MixtureSpec, NumberedMixture, SpecError, Weight};
use batchweave_daemon::config::nearest;
use serde::Serialize;

use super::begin::Begin;
use batchweave_console::CliError;
use batchweave_console::output::joined;
use batchweave_console::sources::weighted;

/// The change that a person wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) weights: BTreeMap<String, Weight>,
    pub(super) begin: Begin,
    /// The producers to change; empty for all that have sources.
    pub(super) producers: Vec<ProducerName>,
}

/// The change of every producer.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) producers: Vec<ProducerChange>,
    /// Producers that do not change, and the reasons.
    pub(super) unchanged: BTreeMap<ProducerName, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProducerChange {
    pub(super) producer: ProducerName,
    /// The batches that it has committed.
    pub(super) committed: Seq,
    /// The first batch with the new weights.
    pub(super) from: Seq,
    pub(super) sources: Vec<SourceChange>,
}

#[derive(Debug, Serialize)]
pub(super) struct SourceChange {
    pub(super) source: String,
    /// Shares by the weights, from 0 to 1.
    pub(super) before: f64,
    pub(super) after: f64,
}

/// Returns the weights of mixture `id` for sources with these configured ones.
pub(super) fn weights(
    spec: &MixtureSpec,
    id: u64,
    sources: &[(String, Weight)],
) -> Result<Vec<Weight>, SpecError> {
    let own: Vec<(&str, Weight)> = sources
        .iter()
        .map(|(name, w)| (name.as_str(), *w))
        .collect();
    match id {
        0 => Ok(own.iter().map(|(_, weight)| *weight).collect()),
        id => spec.weights(id, &own),
    }
}

/// Returns each weight over their sum.
pub(super) fn shares(weights: &[Weight]) -> Vec<f64> {
    let sum: f64 = weights.iter().map(|weight| weight.number()).sum();
    weights.iter().map(|weight| weight.number() / sum).collect()
}

impl Change {
    /// Returns the first batch of each producer.
    pub(super) fn from(&self) -> impl Iterator<Item = (ProducerName, Seq)> {
        let all = self.producers.iter();
        all.map(|change| (change.producer.clone(), change.from))
    }
}

impl Wanted {
    /// Returns the change by the state of the log, or why it is refused.
    pub(super) fn change(&self, m: &Manifest) -> Result<Change, CliError> {
        let spec = read_spec(m)?;
        let (mut selected, mut unchanged) = (Vec::new(), BTreeMap::new());
        for (name, state) in m.producers() {
            let chosen = self.producers.is_empty() || self.producers.contains(name);
            let why = match state {
                _ if !chosen => Some("not asked for"),
                p if p.finished => Some("finished"),
                p if p.cursor.0.is_null() => Some("no batch yet, so its sources are unknown"),
                p if weighted(p).is_empty() => Some("a single [source], so no weights"),
                _ => None,
            };
            match why {
                Some(why) => drop(unchanged.insert(name.clone(), why.to_owned())),
                None => selected.push((name, state)),
            }
        }
        self.check_producers(m, &unchanged)?;
        let names = selected.iter().flat_map(|(_, state)| weighted(state));
        self.check_sources(&names.map(|(name, _)| name).collect())?;
        let begins = self.begin.by(m)?;
        let changes = selected.into_iter().map(|(name, state)| {
            let from = begins.of(name, state)?;
            self.of_producer(name, state, &spec, from)
        });
        Ok(Change {
            producers: changes.collect::<Result<_, CliError>>()?,
            unchanged,
        })
    }

    fn of_producer(
        &self,
        name: &ProducerName,
        state: &ProducerState,
        spec: &MixtureSpec,
        from: Seq,
    ) -> Result<ProducerChange, CliError> {
        let sources = weighted(state);
        let last = state.mixtures.iter().next_back();
        let before = last.map_or(0, |(_, id)| *id);
        // A mixture that is forgotten is shown as the configured one.
        let before = weights(spec, before, &sources).or_else(|_| weights(spec, 0, &sources));
        let before = shares(&before.unwrap_or_default());
        let of = |(name, _): &(String, Weight)| self.weights.get(name).copied();
        let after: Vec<Weight> = sources
            .iter()
            .map(|s| of(s).unwrap_or(Weight::ZERO))
            .collect();
        if after.iter().all(|weight| *weight == Weight::ZERO) {
            let own = joined(sources.iter().map(|(name, _)| name), "");
            return Err(CliError::Usage(format!(
                "producer {name} would have nothing to read: all of its sources ({own}) have weight 0"
            )));
        }
        let all = sources
            .into_iter()
            .zip(before.into_iter().zip(shares(&after)));
        let sources = all.map(|((source, _), (before, after))| SourceChange {
            source,
            before,
            after,
        });
        Ok(ProducerChange {
            producer: name.clone(),
            committed: state.next_seq,
            from,
            sources: sources.collect(),
        })
    }

    fn check_producers(
        &self,
        m: &Manifest,
        unchanged: &BTreeMap<ProducerName, String>,
    ) -> Result<(), CliError> {
        for name in &self.producers {
            if let Some(why) = unchanged.get(name) {
                return Err(CliError::Refused(format!(
                    "producer {name} cannot change: {why}"
                )));
            }
            if m.producer(name).is_none() {
                let all = joined(m.producers().map(|(name, _)| name), "none");
                return Err(CliError::Absent(format!(
                    "no producer is named {name}; the stream has {all}"
                )));
            }
        }
        if unchanged.len() == m.producer_count() {
            let reasons = unchanged.iter();
            let reasons = joined(reasons.map(|(name, why)| format!("{name} ({why})")), "none");
            return Err(CliError::Refused(format!(
                "no producer of this stream can change its mixture; its producers: {reasons}"
            )));
        }
        Ok(())
    }

    fn check_sources(&self, known: &BTreeSet<String>) -> Result<(), CliError> {
        let names = joined(known, "");
        for name in self.weights.keys() {
            if !known.contains(name) {
                let near = nearest(name, known.iter().map(String::as_str))
                    .map_or(String::new(), |near| format!(", did you mean {near}?"));
                return Err(CliError::Usage(format!(
                    "no producer has a source {name}{near} (they have {names})"
                )));
            }
        }
        let left_out = known
            .iter()
            .filter(|name| !self.weights.contains_key(*name));
        match joined(left_out, "").as_str() {
            "" => Ok(()),
            missing => Err(CliError::Usage(format!(
                "no weight is given for {missing}: give each source one, 0 leaves it out"
            ))),
        }
    }

    /// Returns the entry's spec: this mixture, and those before it that a producer may still need.
    pub(super) fn spec(
        &self,
        m: &Manifest,
        id: u64,
        from: &BTreeMap<ProducerName, Seq>,
    ) -> Result<MixtureSpec, CliError> {
        let mixture = NumberedMixture {
            id,
            weights: self.weights.clone(),
            from: from.clone(),
        };
        Ok(read_spec(m)?.with(mixture, needed_mixtures(m)))
    }
}

/// Returns the oldest mixture that a producer may still need: the documents that wait at a cursor are of the mixture that it
/// names, or of later ones.
pub(crate) fn needed_mixtures(m: &Manifest) -> u64 {
    let cursors = m
        .producers()
        .filter_map(|(_, p)| p.cursor.0.pointer("/order/mix"));
    let mixtures = cursors.filter_map(serde_json::Value::as_u64);
    mixtures.min().unwrap_or(0)
}

/// Reads the last mixture of the log.
pub(crate) fn read_spec(m: &Manifest) -> Result<MixtureSpec, CliError> {
    let spec = MixtureSpec::read(&m.mixture().spec);
    spec.map_err(|why| {
        CliError::Unsound(format!(
            "mixture {} of this stream cannot be used: {why}",
            m.mixture().id
        ))
    })
}
