//! The manifest over a store: open, follow, commit, snapshots, fencing.
//!
//! The one crate that joins the pure rules of `batchweave-core` with a store. Invariants:
//! - a record is put at v only by someone who has folded all records before v;
//! - after an unknown outcome only the same bytes go to the same version;
//! - bytes that do not end in their own digest are read again before they are believed;
//! - nothing is published or deleted by a fold that a second one does not confirm;
//! - nothing under `log/` is ever listed or deleted.
#![forbid(unsafe_code)]

mod admin;
mod ahead;
mod append;
mod candidates;
mod chain;
mod checksums;
mod clock;
mod committer;
mod create;
mod doubt;
mod driver;
mod error;
mod folder;
mod inputs;
mod intents;
mod locate;
mod log;
mod open;
mod pacer;
mod patient;
mod producer;
pub mod reclaim;
mod refold;
pub mod repair;
mod resolve;
mod snapshot_job;
mod snapshots;
mod stop;
mod tail;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_rounds;
#[cfg(test)]
mod tests;
mod wants;
mod window;

pub use append::Append;
pub use checksums::{Checksums, StepCrcs, crcs_of};
pub use clock::{Clock, TokioClock};
pub use create::{Creation, create};
pub use driver::{CommitEnd, CommitQueue, Committed, DriverOptions, Standing};
pub use error::LogError;
pub use folder::Folder;
pub use inputs::read_inputs;
pub use locate::Located;
pub use log::{Log, LogOptions};
pub use pacer::{Pacer, positions};
pub use patient::get_intact;
pub use producer::{Commit, Producer, ProducerOpening};
pub use wants::CommitItem;
