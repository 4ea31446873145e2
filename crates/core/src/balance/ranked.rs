//! Bins in the order of a key that grows while documents are placed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bins by a key, the least first, and of one key the lowest bin first. A key may be older than its bin: since keys only
/// grow, it is renewed when the bin's turn comes.
#[derive(Debug)]
pub(super) struct Ranked {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bins without room, until the search ends; kept for its memory.
    tried: Vec<Reverse<(u64, u32)>>,
}

impl Ranked {
    /// Returns the bins with these keys, numbered from 0 on.
    pub(super) fn new(keys: impl Iterator<Item = u64>) -> Self {
        Self {
            heap: keys.zip(0..).map(Reverse).collect(),
            tried: Vec::new(),
        }
    }

    /// Removes and returns the first bin that fits; `None` when none of the first `tries` does.
    pub(super) fn take(
        &mut self,
        tries: usize,
        key: impl Fn(u32) -> u64,
        fits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut found = None;
        while self.tried.len() < tries
            && let Some(Reverse((old, bin))) = self.heap.pop()
        {
            let now = key(bin);
            if now != old {
                self.heap.push(Reverse((now, bin)));
            } else if fits(bin) {
                found = Some(bin);
                break;
            } else {
                self.tried.push(Reverse((now, bin)));
            }
        }
        self.heap.extend(self.tried.drain(..));
        found
    }

    /// Adds a bin that was taken, with its new key.
    pub(super) fn insert(&mut self, key: u64, bin: u32) {
        self.heap.push(Reverse((key, bin)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bin_that_fits_is_taken() {
        let mut keys = [5, 3, 3, 9];
        let mut ranked = Ranked::new(keys.into_iter());
        let of = |keys: [u64; 4]| move |bin: u32| keys[bin as usize];
        assert_eq!(ranked.take(4, of(keys), |_| true), Some(1));
        ranked.insert(3, 1);
        assert_eq!(ranked.take(2, of(keys), |bin| bin == 0), None, "the third");
        assert_eq!(ranked.take(3, of(keys), |bin| bin == 0), Some(0));
        keys[1] = 10;
        assert_eq!(ranked.take(1, of(keys), |_| true), Some(2));
        assert_eq!(ranked.take(1, of(keys), |_| true), Some(3), "1 has grown");
        assert_eq!(ranked.take(1, of(keys), |_| true), Some(1));
        assert_eq!(ranked.take(1, of(keys), |_| true), None);
    }
}
