//! One entry of one reader: it goes on where the reader stands, or says that it came back.

use std::collections::BTreeSet;

use super::{Claim, LegProof, Lookup};
use crate::ids::Step;
use crate::proof::contradiction::Contradiction;

/// Where a reader stands.
pub(super) struct Stand {
    /// It has received every step below.
    pub(super) at: Step,
    /// Where its entries end, as long as no entry without `resumed` goes on there. One that a rank's
    /// return reaches beyond is read after what was told at the return.
    ends: BTreeSet<Step>,
}

impl LegProof<'_> {
    /// Takes one entry of one reader: it must go on where the reader stands.
    pub(super) fn walk(&mut self, claim: &Claim, log: Lookup<'_>) -> Result<(), Contradiction> {
        let Claim { key, entry } = claim;
        if self.leg.to.is_some_and(|to| entry.from >= to) {
            self.proven.thrown_away += entry.received();
            return Ok(());
        }
        self.check_skips(key, entry)?;
        let (attempt, dp_rank) = (self.attempt.state.number, entry.dp_rank);
        let begin = self.leg.from;
        let stand = self.readers.entry(entry.reader()).or_insert(Stand {
            at: begin,
            ends: BTreeSet::from([self.attempt.next_kept(begin)]),
        });
        let at = self.attempt.next_kept(stand.at);
        let from = self.attempt.next_kept(entry.from);
        let key_text = || key.to_string();
        if from > at {
            return Err(Contradiction::Gap {
                key: key_text(),
                attempt,
                dp_rank,
                at,
                from,
            });
        }
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
                self.proven.retold += 1;
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
