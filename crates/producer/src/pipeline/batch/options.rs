//! The parts and settings of a batch builder.

use std::sync::Arc;

use batchweave_core::ids::Seq;
use batchweave_core::inputs::LinkId;
use batchweave_core::order::MixtureChanges;
use serde_json::{Map, Value};

use crate::config::OnBadDocument;
use crate::packing::{Encoder, Packer};
use crate::pipeline::stages::{MissingStage, ProducerStages};

/// The parts and settings of a batch builder.
#[derive(Debug)]
pub struct BatchBuilderOptions {
    pub packer: Box<dyn Packer>,
    /// Number of slices in a batch, and in the batches that the packer returns.
    pub slices: (u32, u32),
    pub encoder: Arc<Encoder>,
    /// The stages of the producer, and the one of the next batch.
    pub(crate) stages: Option<ProducerStages>,
    pub stage: u64,
    pub stage_name: String,
    /// The stage of the next batch that the producer lacks.
    pub(crate) missing: Option<MissingStage>,
    /// Of sources with names: no batch is made before this number of documents was taken.
    pub take_first: u64,
    /// Number of the next batch.
    pub next_seq: Seq,
    /// Number of the first batch that is committed: in a fork the parent may have those before it.
    pub first_new: Seq,
    /// Number of batches of this producer at which it ends (`producer.limit`).
    pub batches: Option<u64>,
    /// Of sources with names: the changes of the mixture.
    pub changes: Option<MixtureChanges>,
    /// Name of the input list, for cursors.
    pub inputs: LinkId,
    /// The settings that decide the bytes, for cursors.
    pub settings: Map<String, Value>,
    /// The last, partial batch is filled up with padding.
    pub fill_last: bool,
    pub on_bad_document: OnBadDocument,
    /// Documents whose pieces the cursor counts were read by the standard of JSON alone: others are bad among them.
    pub strict_replay: bool,
    /// A group is full at this size in bytes.
    pub object_bytes: u64,
    /// A group is full at this number of batches.
    pub group_batches: usize,
}
