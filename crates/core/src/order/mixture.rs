//! The mixture: which source is next. It is the one with the least given amount for its weight, so that the shares
//! hold at every moment, and no chance is involved.

use serde::{Deserialize, Serialize};

/// Parts of a weight of 1: weights have at most nine decimals.
const SCALE: u64 = 1_000_000_000;
const LARGEST: f64 = 1e9;

/// The weight of a source, as a whole number of billionths; stored as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Weight(u64);

impl From<Weight> for u64 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

impl TryFrom<u64> for Weight {
    type Error = String;

    fn try_from(parts: u64) -> Result<Self, String> {
        if parts > LARGEST as u64 * SCALE {
            return Err(format!("a weight of {parts} billionths is too large"));
        }
        Ok(Self(parts))
    }
}

/// The reason why weights are refused.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum WeightError {
    #[error("the weight {0} is not a number from 0 to 1000000000")]
    Range(f64),
    #[error("the weight {0} is too small: at most nine decimals count; multiply all weights")]
    Small(f64),
    #[error("all weights are 0, so no source would be read")]
    AllZero,
}

impl Weight {
    /// A weight of 1.
    pub const ONE: Self = Self(SCALE);
    /// The weight of a source that is left out.
    pub const ZERO: Self = Self(0);

    /// Returns the weight for a number of the configuration.
    pub fn new(number: f64) -> Result<Self, WeightError> {
        if !(0.0..=LARGEST).contains(&number) {
            return Err(WeightError::Range(number));
        }
        let parts = (number * SCALE as f64).round() as u64;
        if parts == 0 && number > 0.0 {
            return Err(WeightError::Small(number));
        }
        Ok(Self(parts))
    }

    /// Returns the weight as a number.
    pub fn number(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }
}

/// Returns the weights for numbers of the configuration; at least one must be above 0.
pub fn weights(numbers: &[f64]) -> Result<Vec<Weight>, WeightError> {
    let weights = numbers
        .iter()
        .map(|number| Weight::new(*number))
        .collect::<Result<Vec<Weight>, WeightError>>()?;
    if weights.iter().all(|weight| *weight == Weight::ZERO) {
        return Err(WeightError::AllZero);
    }
    Ok(weights)
}

/// The unit in which shares are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareUnit {
    #[default]
    Tokens,
    Documents,
}

/// A source as the mixture sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) weight: Weight,
    pub(super) given: u64,
    pub(super) ended: bool,
}

/// Returns the next source: the least `given / weight`, the first of equals; `None` when no source with a weight is
/// left.
pub(super) fn next(sources: impl Iterator<Item = Candidate>) -> Option<usize> {
    let open = sources
        .enumerate()
        .filter(|(_, source)| !source.ended && source.weight > Weight::ZERO);
    // Weights are below 2^60 and amounts below 2^64, so products fit.
    let product = |given: u64, weight: Weight| u128::from(given) * u128::from(weight.0);
    let first =
        open.min_by(|(_, a), (_, b)| product(a.given, b.weight).cmp(&product(b.given, a.weight)));
    first.map(|(n, _)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(weight: f64, given: u64, ended: bool) -> Candidate {
        Candidate {
            weight: Weight::new(weight).unwrap(),
            given,
            ended,
        }
    }

    #[test]
    fn the_least_given_for_its_weight_is_next() {
        let next = |all: &[Candidate]| next(all.iter().copied());
        let a = candidate(0.6, 600, false);
        let b = candidate(0.3, 299, false);
        assert_eq!(next(&[a, b]), Some(1));
        assert_eq!(
            next(&[a, candidate(0.3, 300, false)]),
            Some(0),
            "the first of equals"
        );
        assert_eq!(
            next(&[a, candidate(0.3, 299, true)]),
            Some(0),
            "it has ended"
        );
        assert_eq!(
            next(&[a, candidate(0.0, 0, false)]),
            Some(0),
            "it has no weight"
        );
        assert_eq!(
            next(&[candidate(0.0, 0, false), candidate(1.0, 0, true)]),
            None
        );
        let much = [
            candidate(1e9, u64::MAX, false),
            candidate(1e9, u64::MAX - 1, false),
        ];
        assert_eq!(next(&much), Some(1));
    }

    #[test]
    fn weights_are_checked() {
        assert_eq!(Weight::new(0.6).unwrap(), Weight(600_000_000));
        assert!((Weight::new(0.1).unwrap().number() - 0.1).abs() < 1e-12);
        for bad in [-0.1, f64::NAN, f64::INFINITY, 2e9] {
            assert!(
                matches!(Weight::new(bad), Err(WeightError::Range(_))),
                "{bad}"
            );
        }
        assert_eq!(Weight::new(1e-12), Err(WeightError::Small(1e-12)));
        assert_eq!(weights(&[0.0, 0.0]), Err(WeightError::AllZero));
        assert_eq!(weights(&[1.0, 0.0]).unwrap(), [Weight::ONE, Weight::ZERO]);
    }
}
