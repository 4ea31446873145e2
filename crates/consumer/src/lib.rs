//! The node-local consumer daemon: it follows the log, plans the slices of its local ranks, fetches
//! them ahead of use into sealed shared memory, and serves the ranks over a Unix socket.
//!
//! It stores no position of its own: each rank states where to start, so the daemon may be killed at any
//! time. From the top down:
//!
//! - `program` is the `main` of the binary; `run` starts and stops everything, for the process and for the
//!   simulator;
//! - `server` is the Unix socket, `log_follower` reads the log, `reports` stores progress and heartbeats;
//! - `node` holds the state of the daemon under one lock; `ledger` records what ranks received;
//! - `job` has the rules of jobs, attempts and marks, `fetch` reads indexes and frames, `segments` makes
//!   shared memory, `reclaimer` deletes old data;
//! - `engine` decides what to fetch, push and free (pure);
//! - `describe` answers clients that ask for the stream and its tokenizer;
//! - `losses` are metrics of what ranks report;
//! - `resources` are what all tasks share, among them the store, time and metrics.
#![forbid(unsafe_code)]

pub mod config;
mod context;
mod describe;
mod engine;
mod error;
mod fetch;
mod job;
mod ledger;
mod log_follower;
mod losses;
mod metrics;
mod mistakes;
mod node;
mod program;
mod quarantine;
mod reclaimer;
mod reports;
mod resources;
mod run;
mod segments;
mod server;
mod status_page;
mod store_health;
mod stream_head;

pub use error::RunError;
pub use program::main;
pub use run::simulation;
pub use run::{Running, check, run, run_on};
