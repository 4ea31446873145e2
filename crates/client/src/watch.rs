//! The cause of a reader's wait, for other threads: a trainer's watchdog or logs.

use std::sync::{Arc, Mutex, PoisonError};

use batchweave_wire::WaitCause;

use crate::connect::Cause;

/// The cause of a reader's wait, while `next` blocks another thread.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Cause>>);

impl Watch {
    /// Returns the cause and the daemon's details; `None` while nothing is late.
    pub fn cause(&self) -> Option<(WaitCause, String)> {
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cause.clone()
    }

    pub(crate) fn set(&self, cause: Cause) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }
}
