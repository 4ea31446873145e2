//! The turns of the lanes, and facts that follow from the names in stream.json. They are kept up to date,
//! so that no query walks all producers.
//!
//! A lane is *live* until it has finished and has no waiting TGBs. Only live lanes get turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ProducerName, Seq, Version};
use crate::stream::{StreamConfig, StreamOrder};
use crate::tgb::TgbRecord;

/// A committed TGB that waits for its lane's turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The epoch in which it was committed.
    pub epoch: Epoch,
    /// The version that committed it.
    pub version: Version,
    /// Parts, counts and digest.
    pub tgb: TgbRecord,
}

/// The waiting TGBs of one lane: those just before its next sequence number.
pub(super) type Queue = RedBlackTreeMapSync<Seq, Arc<Waiting>>;

/// The turns and queues of all lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lanes {
    /// The position of each name in stream.json.
    places: Arc<BTreeMap<ProducerName, u32>>,
    /// Named producers that have not finished.
    unfinished: usize,
    live: RedBlackTreeSetSync<u32>,
    turn: u32,
    since: Version,
    queues: RedBlackTreeMapSync<ProducerName, Queue>,
    waiting: usize,
}

impl Lanes {
    /// Returns the state before the first record.
    pub(super) fn new(stream: &StreamConfig) -> Self {
        let names = stream.producers.iter().cloned();
        let lanes = match stream.order {
            StreamOrder::Lanes => stream.producers.len() as u32,
            StreamOrder::Arrival => 0,
        };
        Self {
            places: Arc::new(names.zip(0..).collect()),
            unfinished: stream.producers.len(),
            live: (0..lanes).collect(),
            turn: 0,
            since: 0,
            queues: RedBlackTreeMapSync::new_sync(),
            waiting: 0,
        }
    }

    /// Returns the state of a snapshot; `finished` are the named producers that have finished.
    pub(super) fn stored<'p>(
        stream: &StreamConfig,
        turn: u32,
        since: Version,
        queues: BTreeMap<ProducerName, BTreeMap<Seq, Arc<Waiting>>>,
        finished: impl Iterator<Item = &'p ProducerName>,
    ) -> Self {
        let mut lanes = Self {
            turn,
            since,
            ..Self::new(stream)
        };
        for (name, tgbs) in queues {
            lanes.waiting += tgbs.len();
            let queue: Queue = tgbs.into_iter().collect();
            lanes.queues.insert_mut(name, queue);
        }
        for name in finished {
            lanes.finish(name);
        }
        lanes
    }

    /// Returns whether stream.json names producers, and all have finished.
    pub(super) fn all_finished(&self) -> bool {
        self.unfinished == 0 && !self.places.is_empty()
    }

    /// Returns whether the names in stream.json allow `producer` to be opened.
    pub(super) fn allows(&self, producer: &ProducerName) -> bool {
        self.places.is_empty() || self.places.contains_key(producer)
    }

    /// Returns the lane whose turn it is, as an index into stream.json, and the version that gave it the
    /// turn.
    pub(super) fn turn(&self) -> (u32, Version) {
        (self.turn, self.since)
    }

    /// Returns whether the lane of `producer` has the turn.
    pub(super) fn has_turn(&self, producer: &ProducerName) -> bool {
        self.places.get(producer) == Some(&self.turn)
    }

    /// Returns the waiting TGBs of `producer`.
    pub(super) fn queue(&self, producer: &ProducerName) -> Option<&Queue> {
        self.queues.get(producer)
    }

    /// Returns all lanes with waiting TGBs.
    pub(super) fn queues(&self) -> impl Iterator<Item = (&ProducerName, &Queue)> {
        self.queues.iter()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a waiting TGB.
    pub(super) fn push(&mut self, producer: &ProducerName, seq: Seq, tgb: Arc<Waiting>) {
        let mut queue = self.queues.get(producer).cloned().unwrap_or_default();
        queue.insert_mut(seq, tgb);
        self.queues.insert_mut(producer.clone(), queue);
        self.waiting += 1;
    }

    /// Marks `producer` as finished, apart from its waiting TGBs.
    pub(super) fn finish(&mut self, producer: &ProducerName) {
        let Some(place) = self.places.get(producer) else {
            return;
        };
        self.unfinished = self.unfinished.saturating_sub(1);
        if !self.queues.contains_key(producer) {
            self.live.remove_mut(place);
        }
    }

    /// Passes the turn over lanes that are not live; returns the lane that has it then.
    pub(super) fn pass(&mut self, version: Version) -> Option<u32> {
        let next = self.live.range(self.turn..).next();
        let lane = *next.or_else(|| self.live.first())?;
        if lane != self.turn {
            (self.turn, self.since) = (lane, version);
        }
        Some(lane)
    }

    /// Removes the first TGB of the lane whose turn it is, and gives the turn to the next.
    pub(super) fn take(
        &mut self,
        producer: &ProducerName,
        finished: bool,
        version: Version,
    ) -> Option<(Seq, Arc<Waiting>)> {
        let mut queue = self.queues.get(producer)?.clone();
        let (seq, tgb) = queue.first().map(|(seq, tgb)| (*seq, Arc::clone(tgb)))?;
        queue.remove_mut(&seq);
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove_mut(producer);
            if finished {
                self.live.remove_mut(&self.turn);
            }
        } else {
            self.queues.insert_mut(producer.clone(), queue);
        }
        let lanes = self.places.len() as u32;
        (self.turn, self.since) = ((self.turn + 1) % lanes.max(1), version);
        Some((seq, tgb))
    }
}
