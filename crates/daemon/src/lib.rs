//! What both daemons share: configuration, logs, metrics, the admin endpoint and shutdown.
//!
//! This crate knows nothing of streams, stores or arenas.
#![forbid(unsafe_code)]

pub mod admin;
pub mod clock;
pub mod config;
mod exit;
pub mod metrics;
mod program;
pub mod shutdown;
pub mod telemetry;

pub use exit::Exit;
pub use program::{Failure, Program};
