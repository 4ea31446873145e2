//! Everything that both daemons share around their work. Nothing here knows streams or arenas.
//!
//! - `program`: the `main` of a daemon; `runtime`: that of every program; [`check`]: its `--check`; [`config`], [`telemetry`] and `reload`: configuration and logs;
//!   [`Exit`]: exit codes; [`panics`], [`shutdown`]: the ways to end.
//! - [`admin`]: the HTTP endpoint with metrics, probes and the status page; [`web`]: its server and the parts of
//!   pages; [`metrics`]: their making; [`connection_slots`]: a bound on its connections; `recent_messages`,
//!   `repeats`: log lines kept or left out.
//! - [`health`]: readiness; [`notify`]: the service manager; [`timestamp`]: the time of day;
//!   [`live_line`], [`screen`]: a refreshed line or page on the terminal; [`figures`]: numbers for people; [`disk`]: free space; [`survey`]: the files below a path; [`man_pages`]: manual pages and completions.
#![forbid(unsafe_code)]
pub mod admin;
pub mod check;
pub mod config;
pub mod connection_slots;
pub mod disk;
mod exit;
pub mod figures;
pub mod health;
pub mod live_line;
pub mod man_pages;
pub mod metrics;
pub mod notify;
pub mod panics;
mod program;
mod recent_messages;
mod reload;
mod repeats;
mod runtime;
pub mod screen;
pub mod shutdown;
pub mod stages;
pub mod survey;
pub mod telemetry;
pub mod timestamp;
pub mod web;
pub use exit::Exit;
pub use program::{Failure, Program};
pub use runtime::run_to_exit;
