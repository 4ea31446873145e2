//! Data that follows the loss: the pure part of a driver, which changes the mixture by the losses that ranks report.
//!
//! - `rule` makes shares from the loss of each source, `bounds` keeps them within floor, ceiling and step bound;
//! - `why` is the stored reason of a change, from which anybody computes it again;
//! - `history` knows the mixture of each step, `window` the steps that a decision uses and the change that it goes on from;
//! - `decision` is a change that is due, until another one comes first;
//! - `check` finds changes that break these rules, from the stored reasons alone.

mod bounds;
mod check;
mod decision;
mod error;
mod history;
mod rule;
mod sums;
#[cfg(test)]
mod tests;
mod why;
mod window;

pub use bounds::Bounds;
pub use check::WhyFault;
pub use decision::Decision;
pub use error::DriveError;
pub use history::{MixtureHistory, MixtureInLog, NotWhole};
pub use rule::{Rule, SourceAfter, SourceBefore, decide};
pub use sums::{SourceSums, WindowSums};
pub use why::{DriveSettings, SourceWhy, Why};
pub use window::{KnownSource, Plan, PlanError, VALUES_PERCENT, has_enough};
