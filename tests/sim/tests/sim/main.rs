//! The simulator's own tests, in one program: each more would link the S3 client once more.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod commit;
mod faults;
mod follow;
mod lifecycle;
// Without debug assertions no mistake can be activated.
#[cfg(debug_assertions)]
mod mutations;
