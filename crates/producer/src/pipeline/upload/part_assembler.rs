//! Collects the durable parts of a batch in several objects until the last one is durable. Parts of a batch that
//! never becomes whole are orphans, which reclamation finds.

use batchweave_core::tgb::{Digest, ObjectPart, TgbRecord};
use batchweave_log::CommitItem;

use super::{Last, Uploaded};

/// The parts of one batch, in order.
#[derive(Debug, Default)]
pub(crate) struct PartAssembler {
    parts: Vec<ObjectPart>,
    crcs: Vec<u32>,
    rows: u64,
    tokens: u64,
}

impl PartAssembler {
    /// Adds the next durable group. Returns the batches that can be committed now.
    pub(crate) fn add(&mut self, uploaded: Uploaded) -> Option<CommitItem> {
        let (run, rows, tokens, last) = match uploaded {
            Uploaded::Batches(item) => return Some(item),
            Uploaded::Part {
                run,
                rows,
                tokens,
                last,
            } => (run, rows, tokens, last),
        };
        self.parts.push(run.part);
        self.crcs.extend(run.crcs);
        self.rows += rows;
        self.tokens += tokens;
        let Last {
            provenance,
            cursor,
            mixture,
        } = last?;
        let whole = std::mem::take(self);
        Some(CommitItem {
            tgbs: vec![TgbRecord {
                rows: whole.rows,
                tokens: whole.tokens,
                digest: Digest::from_crcs(whole.crcs),
                parts: whole.parts,
                provenance,
            }],
            cursor,
            mixture,
        })
    }
}
