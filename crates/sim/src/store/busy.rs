//! Reads per key and second, which a store serves from one place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batchweave_store::Op;

/// The reads of single keys, second by second.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    second: u64,
    reads: BTreeMap<Arc<str>, u64>,
    busiest: Vec<u64>,
}

impl Busy {
    /// Counts a request that is sent.
    pub(crate) fn note(&mut self, op: Op, key: &Arc<str>, now: Duration) {
        if now.as_secs() != self.second {
            self.end();
            self.second = now.as_secs();
        }
        if matches!(op, Op::Get | Op::GetRange | Op::Head) {
            *self.reads.entry(Arc::clone(key)).or_default() += 1;
        }
    }

    fn end(&mut self) {
        let most = self.reads.values().copied().max().unwrap_or_default();
        self.busiest.resize(self.second as usize, 0);
        self.busiest.push(most);
        self.reads.clear();
    }

    /// Returns, for each completed second, the reads of its busiest key.
    pub(crate) fn by_second(&mut self) -> Vec<u64> {
        self.end();
        std::mem::take(&mut self.busiest)
    }
}
