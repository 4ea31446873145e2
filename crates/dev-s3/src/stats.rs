//! Counts of requests and answers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::{Fault, Op};

/// Counts since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests by kind, including those with a fault.
    pub requests: BTreeMap<&'static str, u64>,
    /// Answers by HTTP status.
    pub answers: BTreeMap<u16, u64>,
    /// Injected faults, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Bytes of request bodies, as announced.
    pub bytes_in: u64,
    /// Bytes of answer bodies, as announced.
    pub bytes_out: u64,
}

impl Stats {
    /// Returns the requests of one kind.
    pub fn of(&self, op: Op) -> u64 {
        self.requests.get(op.name()).copied().unwrap_or(0)
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    stats: Mutex<Stats>,
}

impl Counters {
    fn with<T>(&self, act: impl FnOnce(&mut Stats) -> T) -> T {
        act(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn request(&self, op: Op, bytes: u64) {
        self.with(|stats| {
            *stats.requests.entry(op.name()).or_default() += 1;
            stats.bytes_in += bytes;
        });
    }

    pub(crate) fn answer(&self, status: u16, bytes: u64) {
        self.with(|stats| {
            *stats.answers.entry(status).or_default() += 1;
            stats.bytes_out += bytes;
        });
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.with(|stats| *stats.faults.entry(fault.name()).or_default() += 1);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        self.with(|stats| stats.clone())
    }
}
