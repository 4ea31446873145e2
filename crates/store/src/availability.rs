//! Whether a store answers at all. Who reads it tries again for a long time before giving up; an
//! operator should not have to wait for that to be told. One failed read is enough: the S3 client has
//! tried it several times.

use std::sync::{Mutex, PoisonError};

use crate::{Op, StoreError};

/// What the last read has come to. Writes don't count: their failures are resolved by reads.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<Option<String>>);

impl Trouble {
    /// Notes an outcome. That something is missing or forbidden is an answer.
    pub(crate) fn note<T>(&self, op: Op, outcome: &Result<T, StoreError>) {
        let reads = matches!(op, Op::Get | Op::GetRange | Op::Head | Op::List);
        let failed = outcome.as_ref().err();
        let failed = failed.filter(|why| why.kind.is_transient());
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match failed {
            Some(why) if reads => *now = Some(why.to_string()),
            Some(_) => {}
            None => *now = None,
        }
    }

    /// The last failure, while nothing is answered.
    pub(crate) fn now(&self) -> Option<String> {
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
    async fn a_store_that_does_not_answer_is_told() {
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
