//! Reuses the memory of durable objects, because the system clears new memory page by page, which takes longer
//! than writing it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A pool of buffers for objects.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Most buffers to keep.
    count: usize,
    /// Size of the largest buffer to keep.
    bytes: usize,
}

impl Buffers {
    /// Returns a pool that keeps at most `count` buffers of at most `bytes`.
    pub(crate) fn new(count: usize, bytes: u64) -> Self {
        Self {
            free: Arc::default(),
            count,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Returns a used buffer, or a new one.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop().unwrap_or_default()
    }

    /// Returns `bytes` as shared bytes; the buffer returns to the pool when the last clone is dropped.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Shared {
            bytes,
            back: self.clone(),
        })
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
        let bytes = std::mem::take(&mut self.bytes);
        let free = self.back.free.lock();
        let mut free = free.unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.back.count && bytes.capacity() <= self.back.bytes {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_with_the_last_of_its_bytes_and_not_too_much_of_it() {
        let buffers = Buffers::new(1, 100);
        let shared = buffers.share(vec![1, 2, 3]);
        let part = shared.slice(1..);
        drop(shared);
        assert_eq!(buffers.take().capacity(), 0);
        assert_eq!(part, [2, 3][..]);
        drop(part);
        assert_eq!(buffers.free.lock().unwrap().len(), 1);
        drop(buffers.share(vec![4]));
        assert_eq!(buffers.free.lock().unwrap().len(), 1);
        assert_eq!(buffers.take(), [1, 2, 3]);
        drop(buffers.share(vec![0; 101]));
        assert!(buffers.take().is_empty());
    }
}
