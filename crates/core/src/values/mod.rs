//! Values that ranks report of trained steps: the loss, summed over the step, by source, and by row or document.
//!
//! - `object` is the stored form, an object beside the ledgers ([docs/format.md](../../../../docs/format.md#values));
//! - `merge` picks, of all objects of a run, the values that count.
//!
//! Values may be lost: no checkpoint and no proof depends on them.

mod merge;
mod object;
#[cfg(test)]
mod tests;

pub use merge::{CoordinateLoss, CoordinateStep, MergedValues};
pub use object::{ValuesBlock, ValuesObject};

use crate::ids::Step;
use crate::limits::NUMBER_MAX;

/// Sources of a step.
pub const VALUE_SOURCES_MAX: usize = 256;
/// Rows or documents of a step.
pub const VALUE_DETAILS_MAX: usize = 7168;

/// The parts of a slice that details are about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DetailOf {
    #[default]
    None,
    /// The rows of the coordinate's slices, in order.
    Row,
    /// The documents, row by row, in the order in which they lie there: a document in two rows is there twice.
    Document,
}

/// The loss of one source in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceLoss {
    /// The number of the source among the producers' `[[sources]]`.
    pub source: u16,
    /// Sum of the loss over its tokens.
    pub sum: f32,
    /// The number of these tokens, or their weight.
    pub weight: f32,
}

/// The loss of one row or document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetailLoss {
    /// Mean loss of its tokens.
    pub mean: f32,
    /// The number of these tokens, or their weight.
    pub weight: f32,
}

/// The values that one rank reports of one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepValues {
    pub step: Step,
    /// Sum of the loss over the tokens with a finite one.
    pub sum: f64,
    /// The number of these tokens, or their weight.
    pub weight: f32,
    /// Tokens whose loss is NaN or infinite, which are in no sum.
    pub nonfinite: u32,
    /// The rank lacked the room to keep the details, or the sources.
    pub details_dropped: bool,
    pub sources_dropped: bool,
    /// In the order of their numbers, each once.
    pub sources: Vec<SourceLoss>,
    pub details: Vec<DetailLoss>,
}

impl StepValues {
    /// Returns the bytes of its stored form.
    pub fn stored_bytes(&self) -> usize {
        object::STEP_BYTES
            + self.sources.len() * object::SOURCE_BYTES
            + self.details.len() * object::DETAIL_BYTES
    }

    /// Checks everything but the relation to other steps.
    pub fn check(&self) -> Result<(), String> {
        let step = self.step;
        if step >= NUMBER_MAX {
            return Err(format!("step {step} is beyond the last one"));
        }
        let (sources, details) = (self.sources.len(), self.details.len());
        if sources > VALUE_SOURCES_MAX || details > VALUE_DETAILS_MAX {
            return Err(format!(
                "step {step} has {sources} sources and {details} rows or documents, at most {VALUE_SOURCES_MAX} and \
                 {VALUE_DETAILS_MAX} are allowed"
            ));
        }
        if self
            .sources
            .windows(2)
            .any(|pair| pair[0].source >= pair[1].source)
        {
            return Err(format!(
                "the sources of step {step} are not in order, each once"
            ));
        }
        let sources = self.sources.iter().map(|one| (one.sum, one.weight));
        let details = self.details.iter().map(|one| (one.mean, one.weight));
        let is_loss = |(loss, weight): (f32, f32)| loss.is_finite() && is_weight(weight);
        if !self.sum.is_finite() || !is_weight(self.weight) || !sources.chain(details).all(is_loss)
        {
            return Err(format!(
                "step {step} has a sum that is not finite, or a weight that is not finite and at least 0"
            ));
        }
        Ok(())
    }
}

fn is_weight(weight: f32) -> bool {
    weight.is_finite() && weight.is_sign_positive()
}
