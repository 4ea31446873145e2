//! What must hold after every run, checked on the evidence alone.
//!
//! - `oracle`: the log read with a second, independent set of rules: every TGB once, in its
//!   producer's order, cursors continuous, nothing of a fenced epoch, whole objects only, nothing
//!   committed before it was uploaded, everything acknowledged is there, no gap;
//! - `writers`: nobody put v + 1 without having read all up to v; only the same bytes went to the
//!   same version;
//! - `openings`: an announced opening that came to nothing is announced again;
//! - `folds`: no correct writer wrote a void entry or record; snapshots and segments are byte for
//!   byte what a fold from the beginning gives;
//! - `readers`: every reader saw a prefix, and in the end everything;
//! - `life`: no data that may still be needed is deleted, no watermark passes what a job keeps, and
//!   nothing is left behind; `received`: ranks got their steps, in order; `ledgers`: what is told of them;
//! - `growth`: what each prefix holds at the end is bounded;
//! - `requests`: nobody but a reclaimer deletes data, nobody lists the log.

mod folds;
pub(crate) mod growth;
mod jobs;
mod ledgers;
mod lifecycle;
mod openings;
mod oracle;
mod readers;
mod received;
pub(crate) mod requests;
mod writers;

use crate::evidence::{Evidence, Violation};
use crate::lifecycle::RECLAIMER;

/// All violations in a run; empty when it is as it must be.
pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut found = evidence.found.clone();
    let log = oracle::check(evidence, &mut found);
    writers::check(evidence, &mut found);
    openings::check(evidence, &log, &mut found);
    folds::check(evidence, &log, &mut found);
    readers::check(evidence, &log, &mut found);
    growth::check(evidence, &log, &mut found);
    if evidence.plan.life.is_some() {
        received::check(evidence, &log, &mut found);
        ledgers::check(evidence, &log, &mut found);
        lifecycle::check(evidence, &log, &mut found);
    }
    let reclaims = |actor: u32| evidence.actor(actor).starts_with(RECLAIMER);
    requests::check(&evidence.events, reclaims, &mut found);
    found
}
