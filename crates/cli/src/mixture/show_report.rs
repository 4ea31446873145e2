//! The mixtures of a stream, with what was taken and given of each source.

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::order::ShareUnit;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct ShowReport {
    pub(super) root: String,
    /// The steps that were counted: the first, and the one after the last.
    pub(super) steps: (Step, Step),
    /// Of these, the steps without provenance, which are not counted.
    pub(super) without_provenance: u64,
    pub(super) mixtures: Vec<MixtureShown>,
}

/// A mixture of one producer.
#[derive(Debug, Serialize)]
pub(super) struct MixtureShown {
    pub(super) producer: ProducerName,
    /// Its number; 0 is the configuration of the producer.
    pub(super) id: u64,
    /// Its first batch, and the one after its last.
    pub(super) from: Seq,
    pub(super) until: Option<Seq>,
    /// The batches are committed, at least in part.
    pub(super) begun: bool,
    /// The first and the last step that was counted.
    pub(super) counted: Option<(Step, Step)>,
    /// The unit of shares: tokens or documents.
    pub(super) unit: ShareUnit,
    /// Tokens in these steps.
    pub(super) tokens: u64,
    pub(super) sources: Vec<SourceShown>,
}

#[derive(Debug, Serialize)]
pub(super) struct SourceShown {
    pub(super) source: String,
    /// Share by the weights, from 0 to 1; `None` when the log does not have them any more.
    pub(super) wanted: Option<f64>,
    /// The documents and tokens that the sampler has taken of it under this mixture, and its share; `None` for mixtures that are not in force.
    pub(super) taken: Option<u64>,
    pub(super) taken_share: Option<f64>,
    /// Its share in the counted steps.
    pub(super) given: Option<f64>,
}
