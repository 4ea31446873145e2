//! `producer.lanes`: the lanes of a stream that one daemon runs, in place of `producer.name`, `index` and `of`.

use std::collections::BTreeSet;

use batchweave_core::stream::StreamOrder;
use batchweave_daemon::config::{ByteSize, Problem};

use super::ProducerConfig;

/// Below this, not even one upload fits (the check of `upload.memory` has the same bound).
const MEMORY_MIN: ByteSize = ByteSize::mib(1);

impl ProducerConfig {
    /// Returns the name of the daemon for people: its producer, or its lanes.
    pub(crate) fn title(&self) -> String {
        if self.producer.lanes.is_empty() {
            self.producer.name.clone()
        } else {
            self.producer.lanes.join(", ")
        }
    }

    /// Returns whether the daemon takes over lanes of others.
    pub(crate) fn takes_over(&self) -> bool {
        !self.producer.lanes.is_empty() && !self.producer.takeover_after.0.is_zero()
    }

    /// Returns the most lanes that the daemon runs at a time.
    pub(crate) fn lanes_max(&self) -> usize {
        let own = self.producer.lanes.len().max(1);
        if self.takes_over() {
            own.max(self.stream.producers.len())
        } else {
            own
        }
    }

    /// Returns the configuration of the producer of `lane`, with its part of the daemon's threads and memory.
    ///
    /// Its share of the input follows from its place in `stream.producers`, so it is the same in every daemon.
    pub(crate) fn of_lane(&self, lane: &str) -> Self {
        let mut config = self.clone();
        let places = &self.stream.producers;
        let place = places.iter().position(|name| name == lane);
        lane.clone_into(&mut config.producer.name);
        config.producer.lanes = Vec::new();
        // A check found that it is listed.
        config.producer.index = place.unwrap_or_default() as u32;
        config.producer.of = places.len().max(1) as u32;
        config.tokenizer.threads =
            (self.tokenizer_threads() / self.producer.lanes.len().max(1)).max(1);
        let memory = self.upload.memory.bytes() / self.lanes_max() as u64;
        config.upload.memory = ByteSize(memory.max(MEMORY_MIN.bytes()));
        config
    }

    /// Returns the configured number of tokenizing threads.
    pub(crate) fn tokenizer_threads(&self) -> usize {
        match self.tokenizer.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        }
    }

    /// Returns the number of threads that make documents: each may wait for one worker process.
    pub(crate) fn document_threads(&self) -> usize {
        let threads = self.tokenizer_threads();
        if self.transform.function.is_empty() {
            threads
        } else {
            threads.max(self.function_workers())
        }
    }

    /// Checks `producer.lanes`; returns whether it is in use.
    pub(super) fn check_lanes(&self, problems: &mut Vec<Problem>) -> bool {
        let producer = &self.producer;
        if producer.lanes.is_empty() {
            return false;
        }
        let mut wrong = |message: String| problems.push(Problem::new("producer.lanes", message));
        if self.stream.order != StreamOrder::Lanes {
            wrong(
                "is for stream.order = \"lanes\" only; set it, or give one producer.name"
                    .to_owned(),
            );
        }
        if !producer.name.is_empty() || producer.index > 0 || producer.of > 1 {
            wrong(
                "names the producers and their shares: remove producer.name, producer.index and producer.of"
                    .to_owned(),
            );
        }
        let mut seen = BTreeSet::new();
        for lane in &producer.lanes {
            if !seen.insert(lane) {
                wrong(format!("names {lane:?} twice; a daemon runs a lane once"));
            } else if !self.stream.producers.contains(lane) {
                wrong(format!(
                    "has {lane:?}, which stream.producers does not list; correct it, or add it there before the stream \
                     is created"
                ));
            }
        }
        true
    }
}
