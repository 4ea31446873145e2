//! The number of runs of tests with random kills, and the size of large inputs.

use std::ops::Range;

/// Returns the seeds of a test: `few` in `make test`, `many` in `make test-long`, which sets `BATCHWEAVE_LONG`.
pub fn seeds(few: u64, many: u64) -> Range<u64> {
    0..if is_long() { many } else { few }
}

/// Returns the size of an input in MiB: `small` in `make test`, `large` in `make test-long`.
pub fn sized(small: usize, large: usize) -> usize {
    if is_long() { large } else { small }
}

fn is_long() -> bool {
    std::env::var_os("BATCHWEAVE_LONG").is_some()
}
