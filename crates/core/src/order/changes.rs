//! Changes of the mixture on their way from the log to the sampler. The log says with which sequence number of a
//! producer a mixture begins; the sampler must know after which document.
//!
//! Invariants:
//! - a mixture begins after the documents that were taken when the batch before it was complete, whether the producer
//!   knew of it then or learned of it later and went back;
//! - so a document is given once, under the old weights or the new, and a restart gives the same documents;
//! - documents that batches have, behind the cursor's place, were taken by some number of passes of each source: a restart
//!   with more passes takes them in the same order.

use std::collections::BTreeMap;

use super::cursor::SamplerState;
use crate::guards;
use crate::ids::Seq;

/// The changes that a producer knows.
#[derive(Debug, Clone, Default)]
pub struct MixtureChanges {
    /// Mixtures by the first sequence number of each.
    from: BTreeMap<Seq, u64>,
    /// Mixtures that have begun, with the total of documents at which they did, while a stored state may lie before.
    begun: Vec<(u64, u64)>,
    /// The passes of each source.
    passes: Vec<u64>,
}

impl MixtureChanges {
    /// Returns the changes `from` the log for a producer whose next batch is `next_seq`, and the stored `state` with
    /// the one that begins there, if that state was stored before it was known. `passes` are those of each source.
    pub fn resume(
        from: BTreeMap<Seq, u64>,
        next_seq: Seq,
        mut state: SamplerState,
        passes: Vec<u64>,
    ) -> (Self, SamplerState) {
        let begins = from.range(..=next_seq).next_back().map(|(_, id)| *id);
        let last = state.next.last().map_or(state.mix, |(id, _)| *id);
        if let Some(id) = begins.filter(|id| *id > last || guards::repeats_mixture()) {
            let ahead = if guards::changes_mixture_at_once() {
                0
            } else {
                state.ahead
            };
            state.next.push((id, state.total[0] + ahead));
        }
        let begun = state.next.clone();
        let changes = Self {
            from,
            begun,
            passes,
        };
        (changes, state)
    }

    /// Adds the changes that the log has for batches after `next_seq`, the next one to be complete. An earlier one
    /// came too late: the batches that it covers cannot be committed, and the producer goes back to its cursor.
    pub fn learn(&mut self, from: &BTreeMap<Seq, u64>, next_seq: Seq) {
        let later = from.range(next_seq + 1..);
        self.from.extend(later.map(|(seq, id)| (*seq, *id)));
    }

    /// Returns the mixture of the batch `seq`.
    pub fn at(&self, seq: Seq) -> u64 {
        let before = self.from.range(..=seq).next_back();
        before.map_or(0, |(_, id)| *id)
    }

    /// Declares the batch before `next_seq` complete, when `documents` were taken. Returns the mixture that begins
    /// with `next_seq`: the sampler changes to it before its next document.
    pub fn complete(&mut self, next_seq: Seq, documents: u64) -> Option<u64> {
        let id = *self.from.get(&next_seq)?;
        self.begun.push((id, documents));
        Some(id)
    }

    /// Returns the stored form of `state`, which lies before the oldest document that waits, when `documents` were
    /// taken. States move forward. With `placed`, batches have some of the documents from it on.
    pub fn store(&mut self, state: SamplerState, documents: u64, placed: bool) -> SamplerState {
        self.begun.retain(|(id, _)| *id > state.mix);
        let mut passes = if placed { state.passes } else { Vec::new() };
        let stored = passes.last().map_or(state.total[0], |(until, _)| *until);
        if placed && stored < documents {
            passes.push((documents, self.passes.clone()));
        }
        SamplerState {
            ahead: documents.saturating_sub(state.total[0]),
            next: self.begun.clone(),
            passes,
            ..state
        }
    }
}
