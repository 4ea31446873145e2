//! The number of runs of tests with random kills.

use std::ops::Range;

/// Returns the seeds of a test: `few` in `make test`, `many` in `make test-long`, which sets `BATCHWEAVE_LONG`.
pub fn seeds(few: u64, many: u64) -> Range<u64> {
    0..std::env::var_os("BATCHWEAVE_LONG").map_or(few, |_| many)
}
