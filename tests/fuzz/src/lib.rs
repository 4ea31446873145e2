//! Fuzz targets: one for each decoder of bytes that come from the store, a socket or an HTTP server.
//!
//! A target never fails on bytes that are refused. It panics when a decoder does, and when a decoded value
//! breaks a rule: it must be encoded and decoded again to the same value, and every operation on it (folds,
//! positions, ranges) must end without a panic.
//!
//! Stored objects end in digests and checksums that no fuzzer guesses. Their targets run each input twice:
//! unchanged, and with the right digests ([`seal`]), so that the code behind them is reached.
//!
//! `make fuzz` runs the targets under libFuzzer; `tests/corpus.rs` runs each file of `tests/fuzz/inputs` and
//! some mutations of it in every test run.
#![forbid(unsafe_code)]

mod check;
pub mod seal;
mod targets;

pub use targets::TARGETS;

/// A decoder under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of the target and of its folder in `tests/fuzz/inputs`.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// The bound of memory of an input.
    pub memory: Memory,
}

/// The most memory that an input may use at once, all copies that the target makes included.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Bytes for an input of any length.
    pub constant: usize,
    /// Bytes per byte of the input.
    pub per_byte: usize,
}

impl Memory {
    /// Returns the bound for an input of `length` bytes.
    pub fn bound(self, length: usize) -> usize {
        self.per_byte
            .saturating_mul(length)
            .saturating_add(self.constant)
    }
}

/// Returns the target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
