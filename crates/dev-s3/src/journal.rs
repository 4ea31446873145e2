//! The times at which puts took effect, for tests and benchmarks that measure at the store rather than
//! at clients.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One put that was carried out, whether or not its answer arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutRecord {
    /// The key, without the bucket.
    pub key: String,
    /// The time after it was carried out.
    pub at: Instant,
    /// The HTTP status: 200, or 412 for the loser of a race.
    pub status: u16,
}

/// The limit of entries; later puts are not recorded.
const PUTS_MAX: usize = 4_000_000;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The text in the keys of the recorded puts.
    wanted: Option<String>,
    puts: Mutex<Vec<PutRecord>>,
}

impl Journal {
    pub(crate) fn new(wanted: Option<String>) -> Self {
        Self {
            wanted,
            puts: Mutex::default(),
        }
    }

    pub(crate) fn note(&self, key: &str, status: u16) {
        if !self.wanted.as_ref().is_some_and(|text| key.contains(text)) {
            return;
        }
        let mut puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
        if puts.len() < PUTS_MAX {
            puts.push(PutRecord {
                key: key.to_owned(),
                at: Instant::now(),
                status,
            });
        }
    }

    pub(crate) fn puts(&self) -> Vec<PutRecord> {
        let puts = self.puts.lock().unwrap_or_else(PoisonError::into_inner);
        puts.clone()
    }
}
