//! Test support for this and other crates: the conformance suite and a store with injected faults.
#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "checks fail by panicking with a clear text"
)]

pub mod conformance;
pub mod faults;
