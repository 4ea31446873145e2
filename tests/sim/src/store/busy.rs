//! Reads per key, and per prefix, and second: a store serves a key from one place, and limits the reads of a prefix.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batchweave_store::Op;

use super::throttle::class;

/// The reads of one second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Second {
    /// Those of the busiest key.
    pub(crate) busiest: u64,
    /// Those of each prefix.
    pub(crate) prefixes: BTreeMap<&'static str, u64>,
}

/// The reads of single keys and of prefixes, second by second.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    second: u64,
    reads: BTreeMap<Arc<str>, u64>,
    prefixes: BTreeMap<&'static str, u64>,
    seconds: Vec<Second>,
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
            *self.prefixes.entry(class(key)).or_default() += 1;
        }
    }

    fn end(&mut self) {
        let busiest = self.reads.values().copied().max().unwrap_or_default();
        let prefixes = std::mem::take(&mut self.prefixes);
        self.seconds.resize(self.second as usize, Second::default());
        self.seconds.push(Second { busiest, prefixes });
        self.reads.clear();
    }

    /// Returns the reads of each completed second.
    pub(crate) fn by_second(&mut self) -> Vec<Second> {
        self.end();
        std::mem::take(&mut self.seconds)
    }
}
