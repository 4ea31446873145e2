//! Slots for a bounded number of connections. When all are taken, a new connection evicts the oldest, so
//! that connections that never make progress lock nobody out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// A set of slots. Clones share it.
#[derive(Debug, Clone)]
pub struct ConnectionSlots {
    max: usize,
    taken: Arc<Mutex<VecDeque<(u64, CancellationToken)>>>,
}

/// The slot of one connection; freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: ConnectionSlots,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionSlots {
    /// Returns `max` free slots, at least one.
    pub fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            taken: Arc::default(),
        }
    }

    fn with<T>(&self, with: impl FnOnce(&mut VecDeque<(u64, CancellationToken)>) -> T) -> T {
        with(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of slots that are taken.
    pub fn taken(&self) -> usize {
        self.with(|taken| taken.len())
    }

    /// Takes a slot; when none is free, that of the oldest connection.
    pub fn enter(&self) -> Slot {
        let evicted = CancellationToken::new();
        let number = self.with(|taken| {
            if taken.len() == self.max
                && let Some((_, oldest)) = taken.pop_front()
            {
                oldest.cancel();
            }
            let number = taken.back().map_or(0, |(last, _)| last + 1);
            taken.push_back((number, evicted.clone()));
            number
        });
        Slot {
            slots: self.clone(),
            number,
            evicted,
        }
    }
}

impl Slot {
    /// Ends when another connection takes this slot.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.evicted.is_cancelled() {
            let number = self.number;
            self.slots
                .with(|taken| taken.retain(|(other, _)| *other != number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_evicted_and_a_dropped_slot_is_free() {
        let slots = ConnectionSlots::new(4);
        let mut all: Vec<_> = (0..4).map(|_| slots.enter()).collect();
        assert!(all.iter().all(|one| !one.evicted.is_cancelled()));
        drop(all.remove(1));
        let next = slots.enter();
        assert!(!all[0].evicted.is_cancelled(), "there was room");
        let last = slots.enter();
        assert!(all[0].evicted.is_cancelled() && !all[1].evicted.is_cancelled());
        assert_eq!(slots.taken(), 4);
        drop((all, next, last));
        assert_eq!(slots.taken(), 0);
    }
}
