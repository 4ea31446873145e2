//! Whether the store answers, separately for reads of the log and reads of data: either can work while the
//! other fails.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use batchweave_store::StoreError;
use tokio::sync::Notify;

/// The kind of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReadKind {
    Log,
    Data,
}

impl ReadKind {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Data => "data",
        }
    }
}

/// The state of the store, as reads find it.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// The last failure of each kind of read, until a read of that kind succeeds.
    failures: Mutex<BTreeMap<ReadKind, String>>,
    answers: Notify,
}

impl StoreHealth {
    /// Notes the outcome of a read: success, or a failure that will be retried.
    pub(crate) fn note(&self, kind: ReadKind, failure: Option<&StoreError>) {
        if let Some(why) = failure {
            self.note_failure(kind, why.to_string());
        } else if self.failures().remove(&kind).is_some() {
            tracing::info!(reads = kind.name(), "the store answers again");
            self.answers.notify_waiters();
        }
    }

    /// Waits for the first read of any kind that succeeds after one of its kind failed.
    pub(crate) async fn answers_again(&self) {
        self.answers.notified().await;
    }

    /// Notes a failure that will be retried.
    pub(crate) fn note_failure(&self, kind: ReadKind, why: String) {
        let previous = { self.failures().insert(kind, why.clone()) };
        if previous.is_none() {
            tracing::warn!(reads = kind.name(), %why, "the store fails; retrying");
        }
    }

    /// The last failure of this kind of read, if none has succeeded since.
    pub(crate) fn failure(&self, kind: ReadKind) -> Option<String> {
        self.failures().get(&kind).cloned()
    }

    /// A current failure of any kind, of the log first.
    pub(crate) fn any_failure(&self) -> Option<String> {
        self.failures().values().next().cloned()
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<ReadKind, String>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
