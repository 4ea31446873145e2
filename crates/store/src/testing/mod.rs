//! What tests of this and other crates use: the conformance suite and a store with faults to order.
#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "checks fail by panicking with a clear text"
)]

pub mod conformance;
pub mod faults;
