//! The step that a TGB gets. `arrival`: the next one. `lanes`: the lanes take turns, a finished lane is
//! passed over, and the first lane that has neither a TGB nor an end stops everything behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{Manifest, StepEntry, Waiting};
use crate::ids::{ProducerName, Seq, Step, Version};
use crate::stream::StreamOrder;

/// Adds the committed TGB `seq` of `producer`; returns the TGBs that got a step by it.
pub(super) fn admit(
    manifest: &mut Manifest,
    producer: &ProducerName,
    seq: Seq,
    tgb: Waiting,
) -> Vec<Arc<StepEntry>> {
    match manifest.stream.order {
        StreamOrder::Arrival => vec![place(manifest, producer.clone(), seq, tgb)],
        StreamOrder::Lanes => {
            let version = tgb.version;
            manifest.lanes.push(producer, seq, Arc::new(tgb));
            advance(manifest, version)
        }
    }
}

/// Gives steps as far as the turns are decided. Called after every change that can decide one, with the
/// version of that change.
pub(super) fn advance(manifest: &mut Manifest, version: Version) -> Vec<Arc<StepEntry>> {
    let mut placed = Vec::new();
    if manifest.stream.order != StreamOrder::Lanes || manifest.sealed {
        return placed;
    }
    let stream = Arc::clone(&manifest.stream);
    while let Some(turn) = manifest.lanes.pass(version) {
        let Some(lane) = stream.producers.get(turn as usize) else {
            break;
        };
        let finished = manifest.producers.get(lane).is_some_and(|p| p.finished);
        let Some((seq, tgb)) = manifest.lanes.take(lane, finished, version) else {
            break;
        };
        let tgb = Arc::unwrap_or_clone(tgb);
        placed.push(place(manifest, lane.clone(), seq, tgb));
    }
    placed
}

fn place(
    manifest: &mut Manifest,
    producer: ProducerName,
    seq: Seq,
    tgb: Waiting,
) -> Arc<StepEntry> {
    let entry = Arc::new(StepEntry {
        step: manifest.next_step,
        producer,
        epoch: tgb.epoch,
        seq,
        version: tgb.version,
        tgb: tgb.tgb,
    });
    manifest.next_step += 1;
    entry
}

/// Returns the step that the next TGB of `producer` would get if it were committed now, to check a writer's
/// assertion.
pub(super) fn step_of_next(manifest: &Manifest, producer: &ProducerName) -> Option<u64> {
    let next = match manifest.stream.order {
        StreamOrder::Arrival => true,
        StreamOrder::Lanes => {
            manifest.lanes.has_turn(producer) && manifest.lanes.queue(producer).is_none()
        }
    };
    next.then_some(manifest.next_step)
}

/// The most steps ahead for which [`Manifest::first_seqs_from`] looks.
const LOOK_AHEAD_MAX: u64 = 1 << 24;

impl Manifest {
    /// Under `lanes`, returns for each lane the number of its first TGB with `step` or a later one, as long as no lane
    /// finishes before. `None` for `arrival`, a step that is taken, or one more than 2^24 steps ahead.
    pub fn first_seqs_from(&self, step: Step) -> Option<BTreeMap<ProducerName, Seq>> {
        let mut left = step.checked_sub(self.next_step)?;
        if self.stream.order != StreamOrder::Lanes || left > LOOK_AHEAD_MAX {
            return None;
        }
        // The next number of each lane, and the end of those that have finished.
        let lane = |name: &ProducerName| {
            let state = self.producers.get(name);
            let committed = state.map_or(0, |p| p.next_seq);
            let end = state.filter(|p| p.finished).map(|p| p.next_seq);
            (committed - self.waiting_of(name), end)
        };
        let mut lanes: Vec<(Seq, Option<Seq>)> = self.stream.producers.iter().map(lane).collect();
        let mut turn = self.lanes.turn().0 as usize;
        while left > 0 && lanes.iter().any(|(next, end)| *end != Some(*next)) {
            let (next, end) = &mut lanes[turn];
            if *end != Some(*next) {
                *next += 1;
                left -= 1;
            }
            turn = (turn + 1) % lanes.len();
        }
        let names = self.stream.producers.iter().cloned();
        Some(names.zip(lanes.iter().map(|(next, _)| *next)).collect())
    }
}
