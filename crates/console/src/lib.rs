//! Common parts of the commands of `batchweave` and `batchweave-lab`. Nothing here knows a command.
//!
//! - `global`: the options of all commands; [`context`]: the store that they name, whose missing objects are looked up
//!   twice (`absent_twice`); `interval`: an option of several;
//!   [`program`]: the start and the end of a program.
//! - [`output`]: results as text or JSON; `error`: failures and their exit codes.
//! - [`describe`], [`job`], [`job_status`], [`sources`], [`stream`]: what is in a stream, read and put in words in the
//!   same way by all commands.
//! - [`programs`]: where a program finds another; [`admin_endpoint`]: requests to a daemon; [`samples`]: its metrics.
#![forbid(unsafe_code)]

mod absent_twice;
pub mod admin_endpoint;
pub mod context;
pub mod describe;
mod error;
mod global;
mod interval;
pub mod job;
pub mod job_status;
pub mod output;
pub mod program;
pub mod programs;
mod remedies;
pub mod samples;
pub mod sources;
pub mod stream;

pub use error::CliError;
pub use global::GlobalArgs;
pub use interval::interval;
