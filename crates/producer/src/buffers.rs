//! Reuses the memory of large blocks, because the system clears new memory page by page, which takes longer
//! than writing it.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// A pool of buffers.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    /// The free buffers; the one that is free for longest is the first.
    free: Arc<Mutex<VecDeque<Vec<u8>>>>,
    /// Most bytes of free buffers.
    most: usize,
}

impl Buffers {
    /// Returns a pool that keeps at most `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            free: Arc::default(),
            most: usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Returns the smallest free buffer with a capacity in `sizes`, with the content that it had; of several, the one that
    /// was used last, which may still be in the CPU caches.
    pub(crate) fn take(&self, sizes: &RangeInclusive<usize>) -> Option<Vec<u8>> {
        let mut free = self.free();
        let latest_first = free.iter().enumerate().rev();
        let fitting = latest_first.filter(|(_, buffer)| sizes.contains(&buffer.capacity()));
        let (at, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        free.remove(at)
    }

    /// Returns `bytes` as shared bytes; the buffer returns to the pool when the last clone is dropped.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Shared {
            bytes,
            back: self.clone(),
        })
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Shared {
    bytes: Vec<u8>,
    back: Buffers,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut free = self.back.free();
        free.push_back(std::mem::take(&mut self.bytes));
        let mut kept: usize = free.iter().map(Vec::capacity).sum();
        while kept > self.back.most
            && let Some(oldest) = free.pop_front()
        {
            kept -= oldest.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(buffers: &Buffers) -> Vec<usize> {
        buffers.free().iter().map(Vec::capacity).collect()
    }

    #[test]
    fn memory_comes_back_with_the_last_of_its_bytes_and_not_too_much_of_it() {
        let buffers = Buffers::new(100);
        let shared = buffers.share(vec![1, 2, 3]);
        let part = shared.slice(1..);
        drop(shared);
        assert_eq!(buffers.take(&(0..=100)), None);
        assert_eq!(part, [2, 3][..]);
        drop(part);
        assert_eq!(sizes(&buffers), [3]);
        drop(buffers.share(vec![4; 60]));
        drop(buffers.share(vec![5; 38]));
        assert_eq!(sizes(&buffers), [60, 38]);
        drop(buffers.share(vec![0; 101]));
        assert!(sizes(&buffers).is_empty());
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_taken() {
        let buffers = Buffers::new(100);
        for size in [40, 20, 30] {
            drop(buffers.share(vec![size; size.into()]));
        }
        assert_eq!(buffers.take(&(21..=29)), None);
        assert_eq!(buffers.take(&(21..=90)), Some(vec![30; 30]));
        assert_eq!(sizes(&buffers), [40, 20]);
        drop(buffers.share(vec![7; 20]));
        assert_eq!(buffers.take(&(1..=90)), Some(vec![7; 20]));
    }
}
