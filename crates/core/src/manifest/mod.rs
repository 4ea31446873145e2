//! The manifest: the state that every reader and writer computes by folding the log.
//!
//! - `record`, `entry`: what is stored in the log;
//! - `state`: what the fold keeps; `snapshot`: the same, stored;
//! - `judge`: is an entry valid in a state? `fold`: the state after a record;
//! - `order`, `lanes`: which step a TGB gets; `trial`: and would get; `view`: a hash over all that
//!   was decided; `invariants`: what must hold after every fold.

pub mod entry;
pub mod fold;
mod fold_error;
mod invariants;
mod job_state;
mod lanes;
mod order;
pub mod record;
pub mod repair;
pub mod rules;
pub mod segment;
pub mod snapshot;
pub mod state;
pub mod trial;
mod view;
pub mod void;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use entry::Entry;
pub use fold::Folded;
pub use fold_error::FoldError;
pub use record::{Hints, Record, Writer};
pub use segment::{Filled, Segment};
pub use state::{Awaited, Manifest, StepEntry};
pub use void::Void;
