//! The cost of a document: what a rank spends on it, in whole numbers, so that every machine arranges alike.

use std::collections::BTreeMap;

/// Parts of a token in which costs are counted.
pub const COST_OF_TOKEN: u64 = 1 << 16;

/// Bits behind the point of a stored coefficient.
const FRACTION_BITS: u32 = 48;
/// Bits by which a coefficient's fraction is finer than that of a cost.
const FINER_BITS: u32 = FRACTION_BITS - COST_OF_TOKEN.trailing_zeros();
/// The bound of a coefficient: with a larger one a few documents would exceed any cost.
const COEFFICIENT_MAX: f64 = 4_294_967_296.0;

/// The coefficients of a cost, in tokens, as a configuration has them.
#[derive(Debug, Clone, PartialEq)]
pub struct CostSpec {
    /// The cost of one token.
    pub linear: f64,
    /// The cost of the square of one token.
    pub quadratic: f64,
    /// The cost of one item of an array, by the array's name.
    pub arrays: BTreeMap<String, f64>,
}

impl CostSpec {
    /// Returns the cost by which only the number of tokens counts.
    pub fn tokens() -> Self {
        Self {
            linear: 1.0,
            quadratic: 0.0,
            arrays: BTreeMap::new(),
        }
    }

    /// Returns the cost of a transformer whose attention costs as much as all else for a document of `crossover` tokens.
    pub fn attention(crossover: f64) -> Self {
        Self {
            quadratic: 1.0 / crossover,
            ..Self::tokens()
        }
    }
}

/// A cost that can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CostError {
    /// A coefficient below 0.
    #[error("{name} is {value}: expected 0 or more")]
    Negative { name: String, value: f64 },
    /// A coefficient that is infinite or not a number, as that of a crossover of 0.
    #[error("{name} is {value}: expected a finite number")]
    NotFinite { name: String, value: f64 },
    /// A coefficient above the bound.
    #[error("{name} is {value:e}: expected at most {COEFFICIENT_MAX}")]
    TooLarge { name: String, value: f64 },
    /// A cost of an array that the documents do not have.
    #[error("arrays.{name}: packing.arrays has no array of this name")]
    UnknownArray { name: String },
    /// All coefficients are 0, so that nothing could be balanced.
    #[error("every document costs 0: expected a cost of tokens or of an array above 0")]
    Nothing,
    /// A document dearer than a cost can be.
    #[error(
        "the cost of a document of {tokens} tokens exceeds the largest number: use smaller coefficients"
    )]
    Overflow { tokens: u32 },
}

/// A cost with checked coefficients, each a whole number of 2^-48 tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostModel {
    linear: u128,
    quadratic: u128,
    /// The cost of an item of each array, in the order of the stream's arrays.
    arrays: Vec<u128>,
}

impl CostModel {
    /// Checks a specification. `arrays` has the names of the stream's arrays, in the order in which documents count
    /// their items.
    pub fn new(spec: &CostSpec, arrays: &[&str]) -> Result<Self, CostError> {
        let stranger = |name: &&String| !arrays.contains(&name.as_str());
        if let Some(name) = spec.arrays.keys().find(stranger) {
            return Err(CostError::UnknownArray { name: name.clone() });
        }
        let of_array = |name: &&str| {
            let value = spec.arrays.get(*name).copied().unwrap_or_default();
            coefficient(&format!("arrays.{name}"), value)
        };
        let model = Self {
            linear: coefficient("linear", spec.linear)?,
            quadratic: coefficient("quadratic", spec.quadratic)?,
            arrays: arrays.iter().map(of_array).collect::<Result<_, _>>()?,
        };
        if model.linear == 0 && model.quadratic == 0 && !model.counts_arrays() {
            return Err(CostError::Nothing);
        }
        Ok(model)
    }

    /// Returns whether items of arrays cost anything. If so, tokens alone do not say how dear a document is.
    pub fn counts_arrays(&self) -> bool {
        self.arrays.iter().any(|cost| *cost > 0)
    }

    /// Returns the cost of a document with this number of items in each array, in parts of a token
    /// ([`COST_OF_TOKEN`]). Arrays that `items` lacks have none.
    pub fn cost(&self, tokens: u32, items: &[u32]) -> Result<u64, CostError> {
        let length = u128::from(tokens);
        let parts = [(self.linear, length), (self.quadratic, length * length)];
        let items = items.iter().map(|items| u128::from(*items));
        let all = parts
            .into_iter()
            .chain(self.arrays.iter().copied().zip(items));
        let sum = all.into_iter().try_fold(0_u128, |sum, (each, number)| {
            sum.checked_add(each.checked_mul(number)?)
        });
        sum.and_then(|sum| u64::try_from(sum >> FINER_BITS).ok())
            .ok_or(CostError::Overflow { tokens })
    }
}

/// Returns a coefficient as a whole number. Multiplying by a power of two is exact, so every machine rounds alike.
fn coefficient(name: &str, value: f64) -> Result<u128, CostError> {
    let name = || name.to_owned();
    if !value.is_finite() {
        return Err(CostError::NotFinite {
            name: name(),
            value,
        });
    }
    if value < 0.0 {
        return Err(CostError::Negative {
            name: name(),
            value,
        });
    }
    if value > COEFFICIENT_MAX {
        return Err(CostError::TooLarge {
            name: name(),
            value,
        });
    }
    Ok((value * (1_u64 << FRACTION_BITS) as f64).round() as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(linear: f64, quadratic: f64, images: f64) -> Result<CostModel, CostError> {
        let arrays = BTreeMap::from([("image".to_owned(), images)]);
        let spec = CostSpec {
            linear,
            quadratic,
            arrays,
        };
        CostModel::new(&spec, &["audio", "image"])
    }

    #[test]
    fn costs_are_parts_of_a_token() {
        let tokens = CostModel::new(&CostSpec::tokens(), &[]).unwrap();
        assert_eq!(tokens.cost(3, &[]), Ok(3 * COST_OF_TOKEN));
        let attention = CostModel::new(&CostSpec::attention(16_384.0), &[]).unwrap();
        assert_eq!(attention.cost(16_384, &[]), Ok(2 * 16_384 * COST_OF_TOKEN));
        assert_eq!(attention.cost(0, &[]), Ok(0));
        // A coefficient of 3.27 parts of a token is not rounded to 3.
        let attention = CostModel::new(&CostSpec::attention(20_000.0), &[]).unwrap();
        let cost = attention.cost(20_000, &[]).unwrap();
        assert!(cost.abs_diff(2 * 20_000 * COST_OF_TOKEN) < 2, "{cost}");
        let images = model(1.0, 0.0, 0.25).unwrap();
        assert_eq!(images.cost(2, &[9, 4]), Ok(3 * COST_OF_TOKEN));
        assert_eq!(images.cost(2, &[]), Ok(2 * COST_OF_TOKEN));
        assert!(images.counts_arrays() && !model(1.0, 0.0, 0.0).unwrap().counts_arrays());
    }

    #[test]
    fn wrong_coefficients_are_named() {
        let error = |linear, quadratic, images| model(linear, quadratic, images).unwrap_err();
        let name = |name: &str| name.to_owned();
        let negative = CostError::Negative {
            name: name("linear"),
            value: -1.0,
        };
        assert_eq!(error(-1.0, 0.0, 0.0), negative);
        assert!(matches!(
            error(1.0, f64::NAN, 0.0),
            CostError::NotFinite { .. }
        ));
        let infinite = CostError::NotFinite {
            name: name("arrays.image"),
            value: f64::INFINITY,
        };
        assert_eq!(error(1.0, 0.0, f64::INFINITY), infinite);
        assert!(matches!(error(1e10, 0.0, 0.0), CostError::TooLarge { .. }));
        assert_eq!(error(0.0, 0.0, 0.0), CostError::Nothing);
        let crossover = CostModel::new(&CostSpec::attention(0.0), &[]);
        assert!(matches!(crossover, Err(CostError::NotFinite { .. })));
        let mut spec = CostSpec::tokens();
        spec.arrays.insert(name("video"), 1.0);
        let unknown = CostError::UnknownArray {
            name: name("video"),
        };
        assert_eq!(CostModel::new(&spec, &["image"]), Err(unknown));
    }

    #[test]
    fn a_cost_above_the_largest_number_is_an_error() {
        for (linear, quadratic) in [(0.0, 4e9), (4e9, 1.0)] {
            let dear = model(linear, quadratic, 0.0).unwrap();
            let tokens = u32::MAX;
            assert_eq!(dear.cost(tokens, &[]), Err(CostError::Overflow { tokens }));
        }
    }
}
