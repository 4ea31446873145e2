//! The node-local consumer daemon: it follows the log, plans the slices of its local ranks, fetches
//! them ahead of use into sealed shared memory, and serves the ranks over a Unix socket.
//!
//! It keeps no position of its own: ranks say where to start, so it may be killed at any time.
//!
//! - `engine` decides (pure): what to fetch, push, free; `space` places frames; `admission` judges
//!   hellos;
//! - `hub` holds engine and ranks under one lock; `follow` finds steps in the log, `fetch` reads
//!   frames; `session` talks to one rank; `marks` stores checkpoint marks.
#![forbid(unsafe_code)]

mod admission;
pub mod config;
mod engine;
mod error;
mod fetch;
mod follow;
mod hub;
mod layouts;
mod listen;
mod marks;
mod memory;
mod metrics;
mod peer;
mod plan;
mod run;
mod session;
mod space;

pub use error::RunError;
pub use run::{run, run_on};
