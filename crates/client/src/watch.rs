//! What a reader waits for, for other threads: a trainer's own watchdog or its logs.

use std::sync::{Arc, Mutex, PoisonError};

use batchweave_wire::WaitCause;

use crate::connect::Cause;

/// Says why a reader's next step has not come, while `next` waits in another thread.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Cause>>);

impl Watch {
    /// The cause, with the daemon's words; `None` while nothing is late.
    pub fn cause(&self) -> Option<(WaitCause, String)> {
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cause.clone()
    }

    pub(crate) fn set(&self, cause: Cause) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }
}
