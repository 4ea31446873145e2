//! The producer daemon: documents from files and objects become tokens, rows and batches, which are
//! uploaded and committed to a stream.
//!
//! - `program` is the `main` of the binary; `run` starts and stops the daemon, with one producer (`produce`) or several
//!   `lanes`; `startup` checks and opens all that a producer needs;
//! - `sources` finds files and reads their units; `tokenizer` makes tokens;
//! - `transform` makes documents of units: text, conversations, ids or arrays; `packing` (pure) makes batches of
//!   documents; `cursor` is the restart point that each commit stores;
//! - `pipeline` joins the stages that read, tokenize, batch and upload;
//! - `flow_control` limits how far the producer runs ahead of the jobs; `stage_hold` waits for a stage that is missing; `worker` runs long work in threads;
//! - `progress` reports how far it is, on the terminal or in the log, and the totals at its end; `sample` shows some
//!   of the data;
//! - `configured_stages` prints the stages of a configuration, for `batchweave stage`;
//! - `survey` reports the files below a path and some of their documents, for `batchweave quickstart`;
//! - `config`, `error`, `metrics` and `status_page` are the operators' side.
//!
//! Invariants: the same input and settings give the same batches, wherever restarts divide the work;
//! a batch is committed only after its objects are durable; the producer deletes nothing.
#![forbid(unsafe_code)]

mod buffers;
pub mod config;
mod configured_stages;
pub mod cursor;
mod error;
mod flow_control;
mod lanes;
pub mod metrics;
mod npy;
mod outcome;
pub mod packing;
pub mod pipeline;
mod produce;
mod program;
mod progress;
mod run;
mod sample;
mod site;
pub mod sources;
mod stage_hold;
mod startup;
mod status_page;
mod survey;
pub mod tokenizer;
pub mod transform;
mod worker;

pub use error::RunError;
pub use outcome::Outcome;
pub use program::main;
pub use run::{Running, run, run_on, run_watched};
pub use startup::check;
pub use transform::chat;
