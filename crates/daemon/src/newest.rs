//! Places for a bounded number of connections, of which the newest are kept: who comes takes the place of
//! the one that came first, so that those who never get on lock nobody out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The places. Clones share them.
#[derive(Debug, Clone)]
pub struct Newest {
    max: usize,
    places: Arc<Mutex<VecDeque<(u64, CancellationToken)>>>,
}

/// A place; free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    among: Newest,
    number: u64,
    over: CancellationToken,
}

impl Newest {
    /// Places for `max`, at least one.
    pub fn of(max: usize) -> Self {
        Self {
            max: max.max(1),
            places: Arc::default(),
        }
    }

    fn with<T>(&self, with: impl FnOnce(&mut VecDeque<(u64, CancellationToken)>) -> T) -> T {
        with(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.with(|places| places.len())
    }

    /// Takes a place; where all are taken, that of the one who came first.
    pub fn enter(&self) -> Place {
        let over = CancellationToken::new();
        let number = self.with(|places| {
            if places.len() == self.max
                && let Some((_, first)) = places.pop_front()
            {
                first.cancel();
            }
            let number = places.back().map_or(0, |(last, _)| last + 1);
            places.push_back((number, over.clone()));
            number
        });
        Place {
            among: self.clone(),
            number,
            over,
        }
    }
}

impl Place {
    /// Until another one takes it.
    pub async fn over(&self) {
        self.over.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.over.is_cancelled() {
            let number = self.number;
            self.among
                .with(|places| places.retain(|(other, _)| *other != number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_goes_and_a_place_given_up_is_free() {
        let newest = Newest::of(4);
        let mut all: Vec<_> = (0..4).map(|_| newest.enter()).collect();
        assert!(all.iter().all(|one| !one.over.is_cancelled()));
        drop(all.remove(1));
        let next = newest.enter();
        assert!(!all[0].over.is_cancelled(), "there was room");
        let last = newest.enter();
        assert!(all[0].over.is_cancelled() && !all[1].over.is_cancelled());
        assert_eq!(newest.taken(), 4);
        drop((all, next, last));
        assert_eq!(newest.taken(), 0);
    }
}
