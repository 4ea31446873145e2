//! Whether a store answers at all. Who reads it tries again for a long time before giving up; an
//! operator should not have to wait for that to be told.

use std::sync::{Mutex, PoisonError};

use crate::{Op, StoreError};

/// Failures without an answer between them before it counts: one alone may be chance.
const ROW: u32 = 2;

/// What the last reads have come to. Writes don't count: their failures are resolved by reads.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<(u32, String)>);

impl Trouble {
    /// Notes an outcome. That something is missing or forbidden is an answer.
    pub(crate) fn note<T>(&self, op: Op, outcome: &Result<T, StoreError>) {
        let reads = matches!(op, Op::Get | Op::GetRange | Op::Head | Op::List);
        let mut row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Err(why) if why.kind.is_transient() => {
                if reads {
                    *row = (row.0.saturating_add(1), why.to_string());
                }
            }
            _ => row.0 = 0,
        }
    }

    /// The last failure, while there are several and no answer.
    pub(crate) fn now(&self) -> Option<String> {
        let row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (row.0 >= ROW).then(|| row.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::counting::Counted;
    use crate::memory::MemoryStore;
    use crate::testing::faults::{Fault, FaultStore, Rates};
    use crate::{Op, Store};

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_told_from_one_bad_read() {
        let faulty = FaultStore::everywhere(MemoryStore::new(), 1, Rates::default());
        let store = Counted::new(std::sync::Arc::new(faulty.clone()));
        for expected in [false, true] {
            faulty.inject(Op::Get, "", Fault::Before);
            store.get("a").await.unwrap_err();
            assert_eq!(store.failing().is_some(), expected);
        }
        // A missing object is an answer.
        store.get("a").await.unwrap_err();
        assert_eq!(store.failing(), None);
    }
}
