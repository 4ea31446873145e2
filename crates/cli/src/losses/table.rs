//! The result: one kind of lines.

use std::path::PathBuf;

use batchweave_core::ids::{AttemptNo, Step};
use serde::Serialize;

/// The loss of a step, over all coordinates that reported it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StepLoss {
    pub(super) step: Step,
    pub(super) attempt: AttemptNo,
    /// Mean over its tokens; null where all are NaN or infinite.
    pub(super) loss: Option<f64>,
    /// Tokens, or their weight.
    pub(super) tokens: f64,
    pub(super) nonfinite: u64,
    /// Coordinates that reported a loss, of those that read the step.
    pub(super) coordinates: u64,
    pub(super) of: u32,
}

/// The loss of a source in all steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SourceLoss {
    /// Its number among the producers' `[[sources]]`.
    pub(super) number: u16,
    /// Its name; null where producers differ or keep none.
    pub(super) source: Option<String>,
    pub(super) loss: Option<f64>,
    pub(super) tokens: f64,
    /// Steps with tokens of it.
    pub(super) steps: u64,
}

/// The loss of a row, or of a document in a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DetailLoss {
    pub(super) step: Step,
    pub(super) slice: u32,
    pub(super) row: u64,
    pub(super) loss: f64,
    pub(super) tokens: f64,
    /// The documents of the row, or the one document; empty without provenance.
    pub(super) documents: Vec<String>,
    /// The document's first token here, counted in the document; of rows null.
    pub(super) first_token: Option<u64>,
    /// Of documents: the loss is that of the whole row.
    pub(super) of_row: bool,
    /// The place of the document among those of its row.
    #[serde(skip)]
    pub(super) index: usize,
    /// Its text; only with --decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
}

/// The lines of the result.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Table {
    Steps(Vec<StepLoss>),
    Sources(Vec<SourceLoss>),
    Details(Vec<DetailLoss>),
    /// They are in this file, as many.
    Written(PathBuf, usize),
}

impl Default for Table {
    fn default() -> Self {
        Self::Steps(Vec::new())
    }
}

impl Table {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Steps(all) => all.len(),
            Self::Sources(all) => all.len(),
            Self::Details(all) => all.len(),
            Self::Written(_, count) => *count,
        }
    }
}
