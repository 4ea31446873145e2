//! The producer daemon: documents from files and objects become tokens, rows and batches, which are
//! uploaded and committed to a stream.
//!
//! - `sources` finds files and reads documents; `tokenizer` makes tokens; `forming` says what a document
//!   becomes by the configured mode, `chat` how a conversation becomes tokens; `packing` (pure) makes batches; `cursor` says where a restart goes on;
//! - `reading`, `tokenizing`, `batching`, `upload` are the stages, joined in `pipeline`;
//! - `run` starts and stops the daemon, `threads` carries its long work; `prepare` makes ready what the configuration asks for, `stream`
//!   and `resume` check what it writes to and where it goes on, `assemble` joins it all; `following` lets the
//!   input grow; `ahead`: how far
//!   it may go, and who holds it back.
//!
//! Invariants: the same input and settings give the same batches, wherever they are cut by restarts;
//! nothing is committed that is not durable; nothing is ever deleted.
#![forbid(unsafe_code)]

mod ahead;
mod assemble;
pub mod batching;
mod board;
pub mod chat;
pub mod config;
pub mod cursor;
mod error;
mod following;
pub mod forming;
pub mod metrics;
pub mod packing;
mod pipeline;
mod prepare;
pub mod reading;
mod resume;
mod run;
pub mod sources;
mod stream;
mod threads;
pub mod tokenizer;
pub mod tokenizing;
mod upload;

pub use error::RunError;
pub use following::Follower;
pub use run::{Outcome, run, run_on, run_watched};
