//! The rules that each run must keep, checked on the evidence alone.
//!
//! - `oracle`: the log read by a second, independent set of rules: every TGB once, in its producer's
//!   order, cursors continuous, no entry of a fenced epoch, whole objects only, no commit before the
//!   upload, every acknowledged commit, no gap;
//! - `writers`: no put of v + 1 without having read all records up to v; only the same bytes for the
//!   same version;
//! - `openings`: a failed announced opening is announced again;
//! - `folds`: correct writers write no void entry or record; snapshots and segments are byte for byte
//!   those of a fold from the beginning;
//! - `readers`: every reader saw a prefix, and in the end everything;
//! - `lifecycle` with `jobs`: no deletion of data that may still be needed, no watermark above a kept
//!   step, no objects left over; `received`: the steps of each rank, in order; `ledgers`: their
//!   records; `states`: what they reported; `changes`: what drivers made of it;
//! - `growth`: bounds of the objects of each prefix at the end;
//! - `requests`: only reclaimers delete data, and no process lists the log.

mod changes;
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
mod states;
mod writers;

use crate::evidence::{Evidence, Violation};
use crate::lifecycle::RECLAIMER;

/// Returns all violations of a run.
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
        states::check(evidence, &log, &mut found);
        changes::check(evidence, &log, &mut found);
        lifecycle::check(evidence, &log, &mut found);
    }
    let reclaims = |actor: u32| evidence.actor(actor).starts_with(RECLAIMER);
    requests::check(&evidence.events, reclaims, &mut found);
    found
}
