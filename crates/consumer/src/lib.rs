//! The node-local consumer daemon: it follows the log, plans the slices of its local ranks, fetches
//! them ahead of use into sealed shared memory, and serves the ranks over a Unix socket.
//!
//! It keeps no position of its own: ranks say where to start, so it may be killed at any time.
//!
//! - `engine` decides (pure): what to fetch, push, free; `space` places frames; `admission` judges
//!   hellos, `member` a rank's place in its job, `skips` quarantined steps;
//! - `hub` holds engine and ranks under one lock; `follow` finds steps in the log, `lookups` their
//!   places, `fetch` reads indexes and frames; `greet` lets a rank in, `session` talks to it; `attempts` opens jobs and attempts in the
//!   log, `marks` stores checkpoint marks; `deliveries` tells the `ledger` what was received.
#![forbid(unsafe_code)]

mod admission;
mod alive;
mod attempt_rate;
mod attempts;
mod board;
pub mod config;
mod context;
mod deliveries;
mod engine;
mod error;
mod fetch;
mod follow;
mod greet;
mod hedge;
mod hub;
mod layouts;
mod ledger;
mod listen;
mod lobby;
mod lookups;
mod marks;
mod member;
mod memory;
mod metrics;
mod mistakes;
mod opening;
mod pace;
mod peer;
mod permits;
mod plan;
mod progress;
mod reclaiming;
mod replaced;
mod rewound;
mod run;
mod serving;
mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
mod skips;
mod space;

pub use error::RunError;
pub use run::{run, run_on};
