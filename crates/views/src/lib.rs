//! The commands that watch a stream and its daemons. They only read.
//!
//! - [`status`]: how much a stream has, how fast it grows, and how far ahead of the jobs it is; or whether nodes wait
//!   for data
//! - [`ui`]: a page of the stream, from the status, and of the named daemons, for a browser
//! - `daemons`: requests for the status of named daemons
#![forbid(unsafe_code)]

mod daemons;
pub mod status;
pub mod ui;
