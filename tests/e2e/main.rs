//! End to end, with the real programs: build them first (`cargo build --release --workspace`).
#![forbid(unsafe_code)]

mod demo;
mod fencing;
