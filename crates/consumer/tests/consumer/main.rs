//! The daemon in this process, with real sockets and shared memory, over stores in memory.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod attempts;
mod causes;
mod describe;
mod faults;
mod floods;
mod growth;
mod indexes;
mod leases;
mod ledger;
mod marks;
mod openings;
mod progress;
mod recall;
mod refusals;
mod replacing;
mod reports;
mod rude;
mod serving;
mod sharing;
mod support;
mod users;
