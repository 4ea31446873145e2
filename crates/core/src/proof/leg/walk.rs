//! One entry of one reader: it continues at the reader's position, behind a hole, or states that the rank returned.

use std::collections::BTreeSet;

use super::{Claim, LegProof, Lookup};
use crate::ids::Step;
use crate::proof::contradiction::Contradiction;

/// The state of a reader.
pub(super) struct ReaderState {
    /// The first step that it has not received.
    pub(super) at: Step,
    /// Ends of its entries at which no entry without `resumed` has continued yet. An entry that the return
    /// of a rank reaches beyond is read after the entries of the return.
    ends: BTreeSet<Step>,
}

impl LegProof<'_> {
    /// Checks and takes one entry; steps between the reader's position and the entry are a hole.
    pub(super) fn walk(&mut self, claim: &Claim, log: Lookup<'_>) -> Result<(), Contradiction> {
        let Claim { key, entry } = claim;
        if self.leg.to.is_some_and(|to| entry.from >= to) {
            self.proven.thrown_away += entry.received();
            return Ok(());
        }
        self.check_skips(key, entry)?;
        let (attempt, dp_rank) = (self.attempt.state.number, entry.dp_rank);
        let begin = self.leg.from;
        let stand = self.readers.entry(entry.reader()).or_insert(ReaderState {
            at: begin,
            ends: BTreeSet::from([self.attempt.next_kept(begin)]),
        });
        let at = self.attempt.next_kept(stand.at);
        let from = self.attempt.next_kept(entry.from);
        let key_text = || key.to_string();
        if from > at {
            self.holes.add(dp_rank, at..from);
        }
        let at = at.max(from);
        let goes_on = !entry.resumed && stand.ends.remove(&from);
        if from < at && !entry.resumed && !goes_on {
            return Err(Contradiction::Doubled {
                key: key_text(),
                attempt,
                dp_rank,
                step: from,
                at,
            });
        }
        stand.at = at.max(entry.to);
        stand.ends = stand.ends.split_off(&from);
        stand.ends.insert(self.attempt.next_kept(entry.to));
        for (step, crcs) in entry.steps() {
            if step < at {
                self.proven.again += 1;
            } else if entry.resumed {
                self.proven.recorded_again += 1;
            }
            if self.leg.to.is_some_and(|to| step >= to) {
                self.proven.thrown_away += 1;
                continue;
            }
            if log(step).is_none() {
                let key = key_text();
                return Err(Contradiction::NotInLog { key, dp_rank, step });
            }
            self.claim(key, entry, step, crcs)?;
        }
        Ok(())
    }
}
