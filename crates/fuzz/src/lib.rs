//! Fuzz targets: one for each decoder of bytes that come from the store, a socket or an HTTP server.
//!
//! A target never fails on bytes that are refused. It panics when a decoder does, and when a rule is
//! broken for what was read: it is written and read again as the same value, and everything that is
//! asked of such a value (folds, positions, ranges) ends without a panic.
//!
//! Stored objects end in digests and checksums that no fuzzer guesses. Their targets run each input
//! twice: as it is, and with the right digests ([`seal`]), so that the code behind them is reached.
//!
//! `make fuzz` runs the targets under libFuzzer; `tests/corpus.rs` runs each file of `tests/fuzz` and
//! some mutations of it in every test run.
#![forbid(unsafe_code)]

mod check;
pub mod seal;
mod targets;

pub use targets::TARGETS;

/// A decoder under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `tests/fuzz`.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// How much memory an input may take.
    pub memory: Memory,
}

/// The most memory that an input may take at once, all copies that the target makes included.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Bytes whatever the input.
    pub constant: usize,
    /// Bytes for each byte of the input.
    pub per_byte: usize,
}

impl Memory {
    /// The bound for an input of `length` bytes.
    pub fn bound(self, length: usize) -> usize {
        self.per_byte
            .saturating_mul(length)
            .saturating_add(self.constant)
    }
}

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
