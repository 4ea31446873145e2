//! What both daemons share: configuration, logs, metrics, the admin endpoint,
//! the service manager and shutdown.
//!
//! This crate knows nothing of streams, stores or arenas.
#![forbid(unsafe_code)]

pub mod admin;
pub mod clock;
pub mod config;
mod exit;
pub mod health;
pub mod metrics;
pub mod newest;
pub mod notify;
pub mod pages;
pub mod panics;
mod program;
mod recent;
mod reload;
mod repeats;
pub mod shutdown;
pub mod telemetry;

pub use exit::Exit;
pub use program::{Failure, Program};
