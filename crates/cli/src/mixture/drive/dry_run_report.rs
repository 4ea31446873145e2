//! The result of a replay: the changes that a driver would have made.

use batchweave_core::ids::Step;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct DryRunReport {
    pub(super) root: String,
    pub(super) job: String,
    pub(super) rule: String,
    /// The steps of the run with losses, `to` excluded.
    pub(super) from: Step,
    pub(super) to: Step,
    /// Windows without values of enough steps.
    pub(super) without_values: u64,
    pub(super) changes: Vec<Replayed>,
}

/// A change that the driver would have made.
#[derive(Debug, Serialize)]
pub(super) struct Replayed {
    pub(super) change: u64,
    pub(super) from: Step,
    pub(super) to: Step,
    pub(super) sources: Vec<ReplayedSource>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReplayedSource {
    pub(super) source: String,
    /// Mean loss; null for a source without tokens.
    pub(super) loss: Option<f64>,
    /// Its part of the tokens in these steps, from 0 to 1.
    pub(super) tokens: f64,
    /// Its share after the change.
    pub(super) share: f64,
}
