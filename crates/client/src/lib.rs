//! Rust client of the consumer daemon's socket (docs/socket.md).
//!
//! ```no_run
//! use std::time::Duration;
//! use batchweave_client::{Client, ConnectOptions};
//!
//! # fn main() -> Result<(), batchweave_client::ClientError> {
//! let options = ConnectOptions::new("/run/batchweave/consumer.sock");
//! let mut reader = Client::connect(options)?;
//! while let Some(batch) = reader.next(Duration::from_secs(60))? {
//!     for slice in batch.slices() {
//!         let tokens: &[u16] = slice.array("tokens")?;
//!         println!("step {} slice {}: {} tokens", batch.step(), slice.index(), tokens.len());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Arrays are views of the daemon's shared memory. A frame is released to the daemon when its last
//! [`Slice`] is dropped. This crate never copies a slice, never writes to shared memory and never waits
//! without a deadline.
//!
//! - `connect`, `options`: from options to a session; `session`: one connection; `reader`: steps in order,
//!   over several sessions.
//! - `batch`, `frames`: delivered slices and their release; `state`, `marks`: positions and checkpoints; `reports`:
//!   states of trained steps.
//! - `micro_batch`: the bins of balanced streams;
//! - `context`: columns for context parallelism; `watch`: the cause of a wait, for other threads.
#![forbid(unsafe_code)]

mod batch;
mod connect;
mod context;
mod error;
mod frames;
mod marks;
mod micro_batch;
mod options;
mod reader;
mod reports;
mod session;
mod state;
mod watch;

pub use batch::{Batch, Slice};
pub use batchweave_arena::Element;
pub use batchweave_wire::{
    ArrayLayout, DetailLoss, DetailOf, Dtype, ErrorName, Fault, SourceLoss, StepValues, WaitCause,
};
pub use connect::Client;
pub use context::{ContextCut, context_columns};
pub use error::ClientError;
pub use micro_batch::MicroBatch;
pub use options::{ConnectOptions, Start};
pub use reader::Reader;
pub use state::State;
pub use watch::Watch;
