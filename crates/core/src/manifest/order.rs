//! Which step a TGB gets. `arrival`: the next one. `lanes`: the lanes take turns, a finished lane
//! is passed over, and the first lane that has neither a TGB nor an end stops everything behind it.

use std::sync::Arc;

use super::state::{Manifest, StepEntry, Waiting};
use crate::ids::{ProducerName, Seq};
use crate::stream::Order;

/// The lane whose turn is `turn`.
pub(super) fn lane_at(manifest: &Manifest, turn: u32) -> Option<&ProducerName> {
    manifest.stream.producers.get(turn as usize)
}

/// Takes the committed TGB `seq` of `producer`; returns what got a step by it.
pub(super) fn admit(
    manifest: &mut Manifest,
    producer: &ProducerName,
    seq: Seq,
    tgb: Waiting,
) -> Vec<Arc<StepEntry>> {
    match manifest.stream.order {
        Order::Arrival => vec![place(manifest, producer.clone(), seq, &tgb)],
        Order::Lanes => {
            let lane = manifest.waiting.entry(producer.clone()).or_default();
            lane.insert(seq, Arc::new(tgb));
            advance(manifest)
        }
    }
}

/// Gives steps as far as the turns are decided. Called after anything that can decide one.
pub(super) fn advance(manifest: &mut Manifest) -> Vec<Arc<StepEntry>> {
    let mut placed = Vec::new();
    if manifest.stream.order != Order::Lanes || manifest.sealed {
        return placed;
    }
    let stream = Arc::clone(&manifest.stream);
    let lanes = &stream.producers;
    let mut passed = 0;
    while passed < lanes.len() {
        let lane = &lanes[manifest.turn as usize];
        let first = manifest
            .waiting
            .get_mut(lane)
            .and_then(std::collections::BTreeMap::pop_first);
        if let Some((seq, tgb)) = first {
            placed.push(place(manifest, lane.clone(), seq, &tgb));
            passed = 0;
        } else if manifest.producers.get(lane).is_some_and(|p| p.finished) {
            passed += 1;
        } else {
            break;
        }
        manifest.turn = (manifest.turn + 1) % lanes.len() as u32;
    }
    manifest.waiting.retain(|_, tgbs| !tgbs.is_empty());
    placed
}

fn place(
    manifest: &mut Manifest,
    producer: ProducerName,
    seq: Seq,
    tgb: &Waiting,
) -> Arc<StepEntry> {
    let entry = Arc::new(StepEntry {
        step: manifest.next_step,
        producer,
        epoch: tgb.epoch,
        seq,
        version: tgb.version,
        tgb: tgb.tgb.clone(),
    });
    manifest.next_step += 1;
    entry
}

/// Where the TGB `seq` of `producer` would stand if it were committed now: for the check of a
/// writer's assertion.
pub(super) fn step_of_next(manifest: &Manifest, producer: &ProducerName) -> Option<u64> {
    match manifest.stream.order {
        Order::Arrival => Some(manifest.next_step),
        Order::Lanes => {
            let its_turn = lane_at(manifest, manifest.turn) == Some(producer);
            (its_turn && !manifest.waiting.contains_key(producer)).then_some(manifest.next_step)
        }
    }
}
