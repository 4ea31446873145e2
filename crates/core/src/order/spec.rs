//! The `spec` of a `mixture` entry of the log: the weights of the mixture, and of those before it that a producer may
//! still need, since a fold keeps the last entry only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mixture::{Weight, WeightError, weights};
use crate::ids::{ProducerName, Seq};

/// Mixtures that are kept in any case.
const KEPT: usize = 64;

/// The weights of one mixture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberedMixture {
    pub id: u64,
    /// In billionths, by the name of the source; a source that is left out has the weight of its configuration.
    pub weights: BTreeMap<String, Weight>,
    /// The first batch of each producer, as in the entry that set it.
    pub from: BTreeMap<ProducerName, Seq>,
}

/// The `spec` of a `mixture` entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureSpec {
    /// By number, the newest last.
    pub mixtures: Vec<NumberedMixture>,
}

/// The reason why a producer cannot follow a mixture.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    #[error("its entry in the log was not written by this program ({0})")]
    Foreign(String),
    #[error("the log's last entry does not describe it any more")]
    Forgotten,
    #[error("{0}")]
    Weights(#[from] WeightError),
}

impl MixtureSpec {
    /// Reads the `spec` of an entry; that of a stream without any mixture is null.
    pub fn read(spec: &Value) -> Result<Self, SpecError> {
        if spec.is_null() {
            return Ok(Self::default());
        }
        Self::deserialize(spec).map_err(|why| SpecError::Foreign(why.to_string()))
    }

    /// Returns the stored form.
    pub fn to_json(&self) -> Value {
        // Names and numbers always have a JSON form.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the spec with one more mixture, without old ones that have a number below `needed`.
    #[must_use]
    pub fn with(mut self, mixture: NumberedMixture, needed: u64) -> Self {
        self.mixtures.push(mixture);
        let spare = self.mixtures.len().saturating_sub(KEPT);
        let old = self.mixtures.iter().take_while(|m| m.id < needed).count();
        self.mixtures.drain(..spare.min(old));
        self
    }

    /// Returns the weights of mixture `id` for `sources`, which have names and configured weights.
    pub fn weights(&self, id: u64, sources: &[(&str, Weight)]) -> Result<Vec<Weight>, SpecError> {
        let mixture = self
            .mixtures
            .iter()
            .find(|m| m.id == id)
            .ok_or(SpecError::Forgotten)?;
        let all: Vec<Weight> = sources
            .iter()
            .map(|(name, own)| mixture.weights.get(*name).copied().unwrap_or(*own))
            .collect();
        if all.iter().all(|weight| *weight == Weight::ZERO) {
            return Err(WeightError::AllZero.into());
        }
        Ok(all)
    }
}

/// Returns weights for named numbers; at least one must be above 0.
pub fn named_weights(
    numbers: &BTreeMap<String, f64>,
) -> Result<BTreeMap<String, Weight>, WeightError> {
    let values: Vec<f64> = numbers.values().copied().collect();
    Ok(numbers.keys().cloned().zip(weights(&values)?).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixture(id: u64, web: f64, code: f64) -> NumberedMixture {
        let numbers = [("web".to_owned(), web), ("code".to_owned(), code)];
        NumberedMixture {
            id,
            weights: named_weights(&numbers.into()).unwrap(),
            from: [("p0".parse().unwrap(), 10 * id)].into(),
        }
    }

    #[test]
    fn a_spec_comes_back_and_gives_weights_in_the_order_of_the_sources() {
        let spec = MixtureSpec::default().with(mixture(1, 0.5, 1.5), 0);
        let json = spec.to_json();
        assert_eq!(
            json.to_string(),
            r#"{"mixtures":[{"from":{"p0":10},"id":1,"weights":{"code":1500000000,"web":500000000}}]}"#
        );
        assert_eq!(MixtureSpec::read(&json).unwrap(), spec);
        let own = Weight::new(3.0).unwrap();
        let sources = [("code", own), ("math", own), ("web", own)];
        let weights = spec.weights(1, &sources).unwrap();
        assert_eq!(weights.map_number(), [1.5, 3.0, 0.5]);
        assert_eq!(spec.weights(2, &sources), Err(SpecError::Forgotten));
    }

    trait Numbers {
        fn map_number(&self) -> Vec<f64>;
    }

    impl Numbers for Vec<Weight> {
        fn map_number(&self) -> Vec<f64> {
            self.iter().map(|weight| weight.number()).collect()
        }
    }

    #[test]
    fn a_producer_without_a_share_is_refused() {
        let spec = MixtureSpec::default().with(mixture(1, 0.0, 1.0), 0);
        let none = spec.weights(1, &[("web", Weight::ONE)]);
        assert_eq!(none, Err(WeightError::AllZero.into()));
    }

    #[test]
    fn old_mixtures_go_when_no_producer_needs_them() {
        let mut spec = MixtureSpec::default();
        for id in 1..=100 {
            spec = spec.with(mixture(id, 1.0, 1.0), 20);
        }
        let ids: Vec<u64> = spec.mixtures.iter().map(|m| m.id).collect();
        assert_eq!(ids, (20..=100).collect::<Vec<_>>());
        let spec = spec.with(mixture(101, 1.0, 1.0), 101);
        assert_eq!(spec.mixtures.len(), KEPT);
    }

    #[test]
    fn only_specs_are_read() {
        for bad in [r#"{"weights":{}}"#, r#"{"mixtures":[{"id":1}]}"#, "7"] {
            let value = serde_json::from_str(bad).unwrap();
            let why = MixtureSpec::read(&value).unwrap_err();
            assert!(matches!(why, SpecError::Foreign(_)), "{why}");
        }
        assert_eq!(
            MixtureSpec::read(&Value::Null).unwrap(),
            MixtureSpec::default()
        );
    }
}
