//! A bound in bytes for work in progress: what is read ahead, and what is being uploaded.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes, handed out in units of 1 KiB, rounded up. An item larger than all of it takes all of it.
pub(super) struct Budget {
    semaphore: Arc<Semaphore>,
    units: u32,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        let units = units(bytes).clamp(1, 1 << 28);
        Self {
            semaphore: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// Waits until `bytes` are free. Never returns `None`, because the semaphore is never closed.
    pub(super) async fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = units(bytes).min(self.units);
        self.semaphore.clone().acquire_many_owned(units).await.ok()
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}
