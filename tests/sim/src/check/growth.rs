//! Checks the number of objects of each prefix at the end: it is bounded by the live processes and the
//! committed data, whatever the number of deaths, retries and requests.

use std::collections::BTreeMap;

use batchweave_core::keys;
use batchweave_core::limits::{BUNDLES_KEPT, SEGMENT_STEPS, SNAPSHOTS_KEPT};
use batchweave_store::Op;

use super::oracle::Log;
use crate::evidence::{Evidence, Violation};
use crate::plan::mischief::Mischief;
use crate::store::throttle::class;
use crate::trace::What;

/// Returns the number of objects by class of keys.
pub(crate) fn counts(evidence: &Evidence) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for key in evidence.objects.keys() {
        *counts.entry(class(key)).or_default() += 1;
    }
    counts
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let lives = evidence.actors.len() as u64;
    let uploads = evidence
        .events
        .iter()
        .filter(|e| e.op == Op::Upload && e.key.starts_with(keys::DATA))
        .filter(|e| e.what == What::Landed { created: true });
    // Half a segment stays until the whole one is due.
    let debris = evidence
        .plan
        .mischief
        .iter()
        .filter(|(_, m)| *m == Mischief::Debris)
        .count() as u64;
    let bounds = BTreeMap::from([
        ("stream", 1),
        ("log", log.records.len() as u64),
        // Each process may end between writing its snapshot and removing an older one.
        ("snapshots", SNAPSHOTS_KEPT as u64 + lives),
        (
            "index",
            // Bundles are deleted one by one, and each process may end before it deletes its last.
            log.steps.len() as u64 / SEGMENT_STEPS + debris + BUNDLES_KEPT + lives,
        ),
        ("data", uploads.count() as u64),
        ("intents", intents_max(evidence)),
    ]);
    for (class, count) in counts(evidence) {
        let most = bounds.get(class).copied();
        if let Some(most) = most.filter(|most| count > *most) {
            let text = format!("{count} objects below {class}, {most} at most");
            found.push(Violation::new("growth", None, text));
        }
    }
}

/// Returns the bound of intents without a reclaimer: a process leaves at most those that it
/// announced and has not deleted yet.
fn intents_max(evidence: &Evidence) -> u64 {
    const LEFT_BY_ONE: u64 = 64;
    LEFT_BY_ONE * evidence.plan.producers.len() as u64
}
