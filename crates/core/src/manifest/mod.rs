//! The manifest: the state that every reader and writer computes by folding the log.
//!
//! - `record`, `entry`: the objects in the log; `repair`: the object that makes a record void;
//! - `state`, `job_state`: the folded state; `snapshot`: its stored form; `segment`: stored steps;
//! - `rules`: whether an entry is valid in a state; `void`: why it is not;
//! - `fold`: the state after a record; `folded`: its effects; `fold_error`: why the fold stops;
//! - `fork`: the state with which a fork begins, and the way to it;
//! - `invariants`: checks after every fold;
//! - `stages`: the shapes of batches, and `stage_of` that of a batch;
//! - `order`, `lanes`: the steps of TGBs; `trial`: the steps that a commit would place;
//! - `bundle`: copies of records in one object;
//! - `view`: a hash over all decisions of a fold.

pub mod bundle;
pub mod entry;
pub mod fold;
mod fold_error;
mod folded;
pub mod fork;
mod invariants;
mod job_state;
mod lanes;
mod order;
pub mod record;
pub mod repair;
pub mod rules;
pub mod segment;
pub mod snapshot;
mod stage_of;
pub mod stages;
pub mod state;
pub mod trial;
mod view;
pub mod void;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use bundle::Bundle;
pub use entry::Entry;
pub use fold_error::FoldError;
pub use folded::Folded;
pub use record::{Hints, Record, Writer};
pub use segment::{Filled, Segment};
pub use state::{Awaited, Manifest, StepEntry};
pub use void::Void;
