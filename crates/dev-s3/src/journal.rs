//! When puts took effect, for tests and benchmarks that measure at the store rather than at clients.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One put that was carried out, whether its answer arrived or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// The key, without the bucket.
    pub key: String,
    /// The instant after the deed.
    pub at: Instant,
    /// The HTTP status that was decided: 200, or 412 for the loser of a race.
    pub status: u16,
}

/// Deeds kept at most; later ones are not noted.
const DEEDS_MAX: usize = 4_000_000;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Puts of keys that contain this are noted.
    wanted: Option<String>,
    deeds: Mutex<Vec<Deed>>,
}

impl Journal {
    pub(crate) fn new(wanted: Option<String>) -> Self {
        Self {
            wanted,
            deeds: Mutex::default(),
        }
    }

    pub(crate) fn note(&self, key: &str, status: u16) {
        if !self.wanted.as_ref().is_some_and(|text| key.contains(text)) {
            return;
        }
        let mut deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        if deeds.len() < DEEDS_MAX {
            deeds.push(Deed {
                key: key.to_owned(),
                at: Instant::now(),
                status,
            });
        }
    }

    pub(crate) fn deeds(&self) -> Vec<Deed> {
        let deeds = self.deeds.lock().unwrap_or_else(PoisonError::into_inner);
        deeds.clone()
    }
}
