//! The batches of one object, on their way to the upload.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::Seq;
use batchweave_core::inputs::LinkId;

use super::split::BatchPart;
use crate::packing::{Encoder, PackedBatch};

/// The content of one object: batches that become visible together, or a part of one batch.
#[derive(Debug)]
pub struct BatchGroup {
    /// Number of the first batch.
    pub first_seq: Seq,
    /// The batches, with consecutive numbers; with `part`, single slices of one batch. Never empty.
    pub batches: Vec<PackedBatch>,
    /// The part, when this is not a whole batch.
    pub part: Option<BatchPart>,
    /// The producer's cursor after the last batch.
    pub cursor: Cursor,
    /// Name of the input list that the cursor counts in.
    pub inputs: LinkId,
    /// Of sources with names: the mixture by which the batches were made.
    pub mixture: Option<u64>,
    /// The stage of the batches.
    pub stage: u64,
    /// Makes slices of the batches.
    pub encoder: Arc<Encoder>,
    /// Size of all frames in bytes; an upper bound, where the size is known only after encoding.
    pub bytes: u64,
    /// Approximate size of the batches in memory in bytes.
    pub memory: u64,
}

impl BatchGroup {
    /// Returns the numbers of the first and the last batch.
    pub(super) fn seqs(&self) -> (Seq, Seq) {
        let more = match &self.part {
            Some(_) => 0,
            None => (self.batches.len() as u64).saturating_sub(1),
        };
        (self.first_seq, self.first_seq + more)
    }
}
