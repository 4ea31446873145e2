//! The report of `batchweave stage show`.

use batchweave_core::ids::{ProducerName, Seq, StageName};
use serde::Serialize;

/// The stages of a stream.
#[derive(Debug, Serialize)]
pub(super) struct ShowReport {
    pub(super) root: String,
    pub(super) stages: Vec<StageShown>,
}

/// A stage: 0 is the shape of stream.json.
#[derive(Debug, Serialize)]
pub(super) struct StageShown {
    pub(super) id: u64,
    pub(super) name: Option<StageName>,
    pub(super) rows_per_slice: u32,
    pub(super) seq_len: u32,
    pub(super) form: String,
    pub(super) producers: Vec<ProducerShown>,
}

/// The batches of a producer in a stage.
#[derive(Debug, Serialize)]
pub(super) struct ProducerShown {
    pub(super) producer: ProducerName,
    pub(super) from: Seq,
    /// The first batch of the stage behind it.
    pub(super) until: Option<Seq>,
    pub(super) begun: bool,
}
