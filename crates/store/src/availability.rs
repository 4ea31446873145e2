//! Whether a store answers at all. Readers retry for a long time before they give up, and an operator
//! should learn of the outage before that. One failed read is enough: the S3 client has already
//! retried it.

use std::sync::{Mutex, PoisonError};

use crate::{Op, StoreError};

/// The outcome of the last read. Failed writes do not count: they are resolved by reads.
#[derive(Debug, Default)]
pub(crate) struct Availability(Mutex<Option<String>>);

impl Availability {
    /// Notes the outcome of a call. "Not found" and "denied" are answers.
    pub(crate) fn note<T>(&self, op: Op, outcome: &Result<T, StoreError>) {
        let reads = matches!(op, Op::Get | Op::GetRange | Op::Head | Op::List);
        let failed = outcome.as_ref().err().filter(|why| why.kind.is_transient());
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match failed {
            Some(why) if reads => *now = Some(why.to_string()),
            Some(_) => {}
            None => *now = None,
        }
    }

    /// Returns the last failure, until the store answers again.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::counting::Counted;
    use crate::memory::MemoryStore;
    use crate::testing::faults::{Fault, FaultStore, Rates};
    use crate::{Op, Store};

    #[tokio::test]
    async fn a_failure_is_reported_until_the_store_answers_again() {
        let faulty = FaultStore::everywhere(MemoryStore::new(), 1, Rates::default());
        let store = Counted::new(std::sync::Arc::new(faulty.clone()));
        assert_eq!(store.failing(), None);
        faulty.inject(Op::Get, "", Fault::Before);
        store.get("a", u64::MAX).await.unwrap_err();
        assert!(store.failing().is_some());
        // A missing object is an answer.
        store.get("a", u64::MAX).await.unwrap_err();
        assert_eq!(store.failing(), None);
    }
}
