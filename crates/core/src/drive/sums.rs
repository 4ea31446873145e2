//! The losses of each source in the steps of a decision, added in the order of steps and coordinates, so that the same
//! values give the same sums.

use std::collections::BTreeMap;

use crate::values::CoordinateStep;

/// The loss of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SourceSums {
    /// Sum of the loss over its tokens with a finite one.
    pub sum: f64,
    /// The number of these tokens, or their weight.
    pub weight: f64,
}

impl SourceSums {
    /// Returns the mean loss; `None` without tokens.
    pub fn loss(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// The losses of all sources in the steps of a decision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowSums {
    /// By the number of the source.
    pub sources: BTreeMap<u16, SourceSums>,
    /// Pairs of step and coordinate whose values have sources.
    pub counted: u64,
}

impl WindowSums {
    /// Adds the values of a step, which come in the order of steps and coordinates. Values without sources do not count.
    pub fn add(&mut self, coordinates: &[CoordinateStep]) {
        for one in coordinates {
            if one.loss.sources.is_empty() || one.loss.sources_dropped {
                continue;
            }
            self.counted += 1;
            for (&number, &(sum, weight)) in &one.loss.sources {
                let all = self.sources.entry(number).or_default();
                all.sum += sum;
                all.weight += weight;
            }
        }
    }
}
