//! Collects the durable parts of a batch in several objects until the last one is durable. Parts of a batch that
//! never becomes whole are orphans, which reclamation finds.

use batchweave_core::tgb::{Digest, ObjectPart, TgbRecord};
use batchweave_log::CommitItem;

use super::{BatchSize, Last, Uploaded};

/// The parts of one batch, in order.
#[derive(Debug, Default)]
pub(crate) struct PartAssembler {
    parts: Vec<ObjectPart>,
    crcs: Vec<u32>,
    size: BatchSize,
}

impl PartAssembler {
    /// Adds the next durable group. Returns the batches that can be committed now.
    pub(crate) fn add(&mut self, uploaded: Uploaded) -> Option<CommitItem> {
        let (run, size, last) = match uploaded {
            Uploaded::Batches(item) => return Some(item),
            Uploaded::Part { run, size, last } => (run, size, last),
        };
        self.parts.push(run.part);
        self.crcs.extend(run.crcs);
        self.size.rows += size.rows;
        self.size.tokens += size.tokens;
        self.size.cost = size.cost;
        let Last {
            provenance,
            cursor,
            mixture,
            stage,
        } = last?;
        let whole = std::mem::take(self);
        Some(CommitItem {
            tgbs: vec![TgbRecord {
                rows: whole.size.rows,
                tokens: whole.size.tokens,
                digest: Digest::from_crcs(whole.crcs),
                parts: whole.parts,
                provenance,
                cost: whole.size.cost,
            }],
            cursor,
            mixture,
            stage,
        })
    }
}
