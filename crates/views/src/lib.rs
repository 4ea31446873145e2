//! The commands that watch a stream and its daemons. They only read.
//!
//! - [`status`]: how much a stream has, how fast it grows, and how far ahead of the jobs it is
//! - [`top`]: whether nodes wait for data, from the metrics of their daemons
//! - [`ui`]: a page of the stream, from the status, and of the named daemons, for a browser
#![forbid(unsafe_code)]

pub mod status;
pub mod top;
pub mod ui;
