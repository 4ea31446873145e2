//! Commits on trial: the steps that a commit would place, and their bytes, for writers that must know
//! before they write.

use super::entry::Entry;
use super::order;
use super::state::{Manifest, Waiting};
use crate::ids::{ProducerName, Step};
use crate::stream::StreamOrder;
use crate::tgb::{Digest, ObjectPart, TgbRecord};

/// The steps that a commit places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlacedSteps {
    pub steps: u64,
    pub bytes: u64,
}

/// A state that commits on trial change. A copy is cheap.
#[derive(Debug, Clone)]
pub struct Trial(Manifest);

impl Trial {
    /// Returns a trial that begins at `manifest`.
    pub fn new(manifest: &Manifest) -> Self {
        Self(manifest.clone())
    }

    /// Returns the first step without a TGB.
    pub fn next_step(&self) -> Step {
        self.0.next_step
    }

    /// Returns whether the next TGB of `producer` gets its step at once. Under `lanes`: whether the first
    /// missing step is its own, so that all lanes wait for it.
    pub fn owns_next_step(&self, producer: &ProducerName) -> bool {
        match self.0.stream.order {
            StreamOrder::Arrival => true,
            StreamOrder::Lanes => self.0.lanes.has_turn(producer),
        }
    }

    /// Returns the number of TGBs of `producer` that wait for their turn.
    pub fn waiting_of(&self, producer: &ProducerName) -> u64 {
        self.0.waiting_of(producer)
    }

    /// Commits the next TGBs of `producer`.
    pub fn commit(&mut self, producer: &ProducerName, tgbs: &[TgbRecord]) -> PlacedSteps {
        let mut given = PlacedSteps::default();
        for tgb in tgbs {
            if self.0.stream.order == StreamOrder::Arrival {
                self.0.next_step += 1;
                given.steps += 1;
                given.bytes = given.bytes.saturating_add(tgb.bytes());
                continue;
            }
            let queue = self.0.lanes.queue(producer);
            let seq = queue
                .and_then(|q| q.last())
                .map_or(0, |(seq, _)| seq.saturating_add(1));
            let waiting = Waiting {
                epoch: 0,
                version: self.0.next_version,
                tgb: weight(tgb.bytes()),
            };
            for entry in order::admit(&mut self.0, producer, seq, waiting) {
                given.steps += 1;
                given.bytes = given.bytes.saturating_add(entry.tgb.bytes());
            }
        }
        given
    }

    /// Applies a `finished` entry.
    pub fn finish(&mut self, entry: &Entry) -> PlacedSteps {
        let version = self.0.next_version;
        let mut given = PlacedSteps::default();
        for entry in self.0.apply(entry, version) {
            given.steps += 1;
            given.bytes = given.bytes.saturating_add(entry.tgb.bytes());
        }
        given
    }
}

/// Returns a TGB of `bytes` bytes; the trial uses nothing else of it.
fn weight(bytes: u64) -> TgbRecord {
    let part = ObjectPart {
        key: String::new(),
        offset: 0,
        length: bytes,
        first_slice: 0,
        slices: 0,
        frame_bytes: None,
        index: None,
    };
    TgbRecord {
        rows: 0,
        tokens: 0,
        digest: Digest([0; 32]),
        parts: vec![part],
        provenance: None,
        cost: None,
    }
}

impl Manifest {
    /// Returns the number of TGBs of one producer that are committed and wait for their turn.
    pub fn waiting_of(&self, producer: &ProducerName) -> u64 {
        self.lanes.queue(producer).map_or(0, |q| q.size() as u64)
    }

    /// Returns the bytes of all TGBs that wait for their turn. Walks them.
    pub fn waiting_bytes(&self) -> u64 {
        let all = self.lanes.queues().flat_map(|(_, queue)| queue.values());
        all.fold(0, |sum, waiting| {
            u64::saturating_add(sum, waiting.tgb.bytes())
        })
    }
}
