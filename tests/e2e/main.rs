//! End to end, with the real programs: build them first (`cargo build --release --workspace`).
#![forbid(unsafe_code)]
// A test that cannot continue panics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ahead;
mod demo;
mod drive;
mod fencing;
mod fetch;
mod full_disk;
mod large;
mod memory;
mod mixture;
mod modes;
mod objects;
mod reclaim;
mod refusals;
mod restarts;
mod scene;
mod shown;
mod vanish;
