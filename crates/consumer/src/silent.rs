//! Connections whose first message has not come: where there are many, the one that came first goes, so
//! that those who say nothing lock nobody out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// So many at a time.
const SILENT_MAX: usize = 64;

/// All of them, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Silent(Arc<Mutex<VecDeque<(u64, CancellationToken)>>>);

/// One of them; it is none any more when this is dropped.
pub(crate) struct Silence {
    among: Silent,
    number: u64,
    over: CancellationToken,
}

impl Silent {
    fn with<T>(&self, with: impl FnOnce(&mut VecDeque<(u64, CancellationToken)>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.with(|silent| silent.len())
    }

    /// Takes one in.
    pub(crate) fn enter(&self) -> Silence {
        let over = CancellationToken::new();
        let number = self.with(|silent| {
            if silent.len() == SILENT_MAX
                && let Some((_, first)) = silent.pop_front()
            {
                first.cancel();
            }
            let number = silent.back().map_or(0, |(last, _)| last + 1);
            silent.push_back((number, over.clone()));
            number
        });
        Silence {
            among: self.clone(),
            number,
            over,
        }
    }
}

impl Silence {
    /// Until another one takes its place.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        if !self.over.is_cancelled() {
            let number = self.number;
            self.among
                .with(|silent| silent.retain(|(other, _)| *other != number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_goes_and_who_speaks_is_counted_no_more() {
        let silent = Silent::default();
        let mut all: Vec<_> = (0..SILENT_MAX).map(|_| silent.enter()).collect();
        assert!(all.iter().all(|one| !one.over.is_cancelled()));
        drop(all.remove(1));
        let next = silent.enter();
        assert!(!all[0].over.is_cancelled(), "there was room");
        let last = silent.enter();
        assert!(all[0].over.is_cancelled() && !all[1].over.is_cancelled());
        assert_eq!(silent.count(), SILENT_MAX);
        drop((all, next, last));
        assert_eq!(silent.count(), 0);
    }
}
