//! The losses that ranks report of their steps, until an object has them.
//!
//! Each ledger of an attempt seals its values into an object, which `values_task` stores: no mark waits for it, but the
//! reports with them are confirmed after it, so that ranks send them again where this daemon dies before. Values that the
//! store does not take are lost, and counted. All values in memory, sealed ones too, have at most `BYTES_MAX`: beyond it a step
//! loses its details first, then its sources, then all its values.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use batchweave_core::ids::{AttemptId, AttemptNo, JobName, Step, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::values::{
    DetailLoss, DetailOf, SourceLoss, StepValues, ValuesBlock, ValuesObject,
};
use batchweave_wire as wire;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::job::membership::Member;
use crate::job::states::Receipts;
use crate::metrics::Metrics;

/// Bytes of values in memory.
const BYTES_MAX: usize = 32 << 20;
/// Bytes of an attempt's values at which its ledger is due.
const DUE_BYTES: usize = 4 << 20;

const _: () = {
    assert!(wire::VALUE_SOURCES_MAX == batchweave_core::values::VALUE_SOURCES_MAX);
    assert!(wire::VALUE_DETAILS_MAX == batchweave_core::values::VALUE_DETAILS_MAX);
    assert!(BYTES_MAX < batchweave_core::limits::VALUES_BYTES_MAX);
};

/// The job, its incarnation, and the attempt.
type AttemptKey = (JobName, Version, AttemptNo);
/// The coordinate, the rank if known, the kind of details, and whether it has a part of the tokens.
type BlockKey = (u32, Option<u32>, DetailOf, bool);

/// The values of an attempt that no object has.
#[derive(Debug)]
struct AttemptValues {
    id: AttemptId,
    blocks: BTreeMap<BlockKey, Block>,
    bytes: usize,
}

#[derive(Debug)]
struct Block {
    slices: Range<u32>,
    steps: BTreeMap<Step, StepValues>,
}

/// An object that is not stored yet.
#[derive(Debug)]
struct Sealed {
    key: String,
    body: Bytes,
    steps: u64,
    /// Its share of the bytes in memory.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    attempts: BTreeMap<AttemptKey, AttemptValues>,
    sealed: VecDeque<Sealed>,
    /// Of all values here.
    bytes: usize,
    /// The number of the next object.
    number: u64,
    /// The first object that is neither stored nor lost.
    undone: u64,
    /// Reports whose states are stored, with the number of the first object that has none of their values.
    unconfirmed: VecDeque<(u64, Receipts)>,
}

/// The values of all ranks on this node that are not stored.
#[derive(Debug, Default)]
pub(crate) struct Values {
    inner: Mutex<Inner>,
    /// An object was sealed.
    pub(crate) sealed: Notify,
}

impl Values {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the values of a rank's steps; returns whether the attempt's ledger is due.
    pub(crate) fn note(
        &self,
        member: &Member,
        values: impl Iterator<Item = wire::StepValues>,
        metrics: &Metrics,
    ) -> bool {
        let mut inner = self.inner();
        for one in values {
            metrics.losses.note(&one);
            let (of, part) = (of(one.of), one.part);
            let outcome = inner.keep(member, (of, part), kept(one));
            metrics.values.with_label_values(&[outcome]).inc();
        }
        let attempt = inner.attempts.get(&key(member));
        attempt.is_some_and(AttemptValues::is_due)
    }

    /// Returns the attempts with values that no object has.
    pub(crate) fn attempts(&self) -> Vec<AttemptKey> {
        self.inner().attempts.keys().cloned().collect()
    }

    /// Returns those with enough values for an object.
    pub(crate) fn due(&self) -> Vec<AttemptKey> {
        let inner = self.inner();
        let due = inner
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.is_due());
        due.map(|(key, _)| key.clone()).collect()
    }

    /// Seals the values of an attempt into an object, to be stored.
    pub(crate) fn seal(&self, key: &AttemptKey, stream: StreamId, node: &str) {
        let mut inner = self.inner();
        let Some(attempt) = inner.attempts.remove(key) else {
            return;
        };
        let bytes = attempt.bytes;
        let object = attempt.into_object(stream);
        let steps = object
            .blocks
            .iter()
            .map(|block| block.steps.len() as u64)
            .sum();
        let key = keys::values(&key.0, key.1, key.2, object.steps(), node, inner.number);
        inner.number += 1;
        let body = Bytes::from(object.encode());
        inner.sealed.push_back(Sealed {
            key,
            body,
            steps,
            bytes,
        });
        self.sealed.notify_one();
    }

    /// The number of the next object: those below it have all values until now that are sealed.
    pub(crate) fn next_number(&self) -> u64 {
        self.inner().number
    }

    /// Notes that the states of reports are stored, whose values are in objects below `number`; returns the reports
    /// to confirm.
    pub(crate) fn states_stored(&self, number: u64, receipts: Receipts) -> Receipts {
        let mut inner = self.inner();
        inner.unconfirmed.push_back((number, receipts));
        inner.confirmable()
    }

    /// Returns key, bytes and number of steps of the first sealed object.
    pub(crate) fn next(&self) -> Option<(String, Bytes, u64)> {
        let inner = self.inner();
        let first = inner.sealed.front()?;
        Some((first.key.clone(), first.body.clone(), first.steps))
    }

    /// Forgets the first sealed object, which is stored or lost; returns the reports to confirm.
    pub(crate) fn done(&self) -> Receipts {
        let mut inner = self.inner();
        if let Some(sealed) = inner.sealed.pop_front() {
            inner.bytes -= sealed.bytes;
            inner.undone += 1;
        }
        inner.confirmable()
    }
}

impl Inner {
    /// Takes the reports that no object delays any more.
    fn confirmable(&mut self) -> Receipts {
        let mut all = Receipts::new();
        let undone = self.undone;
        while let Some((_, receipts)) =
            (self.unconfirmed).pop_front_if(|(number, _)| *number <= undone)
        {
            all.extend(receipts);
        }
        all
    }

    /// Keeps the values of a step within the bounds; returns what became of them.
    fn keep(
        &mut self,
        member: &Member,
        (of, part): (DetailOf, bool),
        mut values: StepValues,
    ) -> &'static str {
        let fits = |values: &StepValues| self.bytes + values.stored_bytes() <= BYTES_MAX;
        let mut outcome = "kept";
        if !fits(&values) {
            values.details_dropped |= !values.details.is_empty();
            values.details.clear();
            outcome = "cut";
        }
        if !fits(&values) {
            values.sources_dropped |= !values.sources.is_empty();
            values.sources.clear();
        }
        if !fits(&values) {
            return "dropped";
        }
        let bytes = values.stored_bytes();
        let attempt = self
            .attempts
            .entry(key(member))
            .or_insert_with(|| AttemptValues {
                id: member.id,
                blocks: BTreeMap::new(),
                bytes: 0,
            });
        let block = (member.dp_rank, member.rank, of, part);
        let block = attempt.blocks.entry(block).or_insert_with(|| Block {
            slices: member.slices.clone(),
            steps: BTreeMap::new(),
        });
        let before = block.steps.insert(values.step, values);
        let before = before.map_or(0, |values| values.stored_bytes());
        attempt.bytes = attempt.bytes + bytes - before;
        self.bytes = self.bytes + bytes - before;
        outcome
    }
}

impl AttemptValues {
    fn is_due(&self) -> bool {
        self.bytes >= DUE_BYTES
    }

    fn into_object(self, stream: StreamId) -> ValuesObject {
        let blocks = self.blocks.into_iter();
        let blocks = blocks.map(|((dp_rank, rank, of, part), block)| ValuesBlock {
            dp_rank,
            rank,
            first_slice: block.slices.start,
            slices: block.slices.len() as u32,
            of,
            part,
            steps: block.steps.into_values().collect(),
        });
        ValuesObject {
            stream,
            attempt: self.id,
            blocks: blocks.collect(),
        }
    }
}

fn key(member: &Member) -> AttemptKey {
    (member.job.clone(), member.opened, member.attempt)
}

fn of(of: wire::DetailOf) -> DetailOf {
    match of {
        wire::DetailOf::None => DetailOf::None,
        wire::DetailOf::Row => DetailOf::Row,
        wire::DetailOf::Document => DetailOf::Document,
    }
}

/// Returns the stored form of values, which the wire has checked.
fn kept(values: wire::StepValues) -> StepValues {
    let source = |one: wire::SourceLoss| SourceLoss {
        source: one.source,
        sum: one.sum,
        weight: one.weight,
    };
    let detail = |one: wire::DetailLoss| DetailLoss {
        mean: one.mean,
        weight: one.weight,
    };
    StepValues {
        step: values.step,
        sum: values.sum,
        weight: values.weight as f32,
        nonfinite: values.nonfinite,
        details_dropped: values.details_dropped,
        sources_dropped: values.sources_dropped,
        sources: values.sources.into_iter().map(source).collect(),
        details: values.details.into_iter().map(detail).collect(),
    }
}
