//! The manifest over a store: open, follow, commit, snapshots, fencing.
//!
//! The one crate that joins the pure rules of `batchweave-core` with a store. Invariants:
//! - a record is put at version v only after all records before v have been folded;
//! - after an unknown outcome only the same bytes are put at the same version;
//! - bytes that do not end in their own digest, or do not fit their key, are read again before they are used;
//! - nothing is published or deleted by a fold that a second fold does not confirm;
//! - nothing under `log/` is ever listed or deleted;
//! - a bundle of records that does not continue the log changes nothing.
//!
//! Modules: `read` opens and follows the log, `copies` writes snapshots and index segments beside it,
//! `fork` makes a stream that goes on where another stood,
//! `commit` appends a producer's entries, `flow_control` bounds how far a producer runs ahead, `admin`
//! has the commands of operators: entries, repairs, reclamation.
#![forbid(unsafe_code)]

mod admin;
mod clock;
mod commit;
mod copies;
mod create;
mod error;
mod flow_control;
mod fork;
pub mod inbox;
mod log;
mod read;
#[cfg(test)]
mod testing;
mod tokenizer;

pub use admin::{reclaim, repair};
pub use clock::{Clock, TokioClock};
pub use commit::append::Append;
pub use commit::committer::{Committer, OpenOutcome};
pub use commit::mixtures::MixturesInLog;
pub use commit::pending::CommitItem;
pub use commit::task::{CommitEnd, CommitOptions, CommitProgress, CommitQueue};
pub use create::{Creation, create};
pub use error::LogError;
pub use flow_control::limiter::FlowControlStatus;
pub use flow_control::positions::PositionReader;
pub use fork::{ForkError, ForkPlan, Made, make_fork, plan_fork};
pub use log::{Log, LogOptions};
pub use read::as_of::AsOf;
pub use read::checksums::{Checksums, StepCrcs, slice_crcs};
pub use read::fitting::get_fitting;
pub use read::follow::Follower;
pub use read::frames::{Crc, Frame, FramesError};
pub use read::inputs::read_inputs;
pub use read::locate::Located;
pub use read::shared_fold::SharedFold;
pub use tokenizer::{read_tokenizer, store_tokenizer};
