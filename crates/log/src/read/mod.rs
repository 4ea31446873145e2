//! Reading the log.
//!
//! - `beginning`: the state before version 0; `open`: opens the log, or jumps ahead to the newest snapshot;
//! - `snapshot_search`: finds a snapshot that belongs to the log;
//! - `tail`: follows the log and folds its records;
//! - `bundle`: reads the newest records from one object; `follow`: chooses between it and the records;
//! - `anchor`: compares records from bundles with the log;
//! - `window`: reads many records in one round of parallel requests;
//! - `locate`: finds the entry of a step; `located_steps`: compares some with their records;
//! - `checksums`: reads slice checksums from the indexes of data objects;
//! - `frames`: reads and verifies the slices of a step;
//! - `inputs`: reads the input list of a producer;
//! - `retrying`: a store whose reads are retried; `fitting`: reads of bytes that must fit their key;
//! - `self_check`: what the log does when its own fold may be wrong;
//! - `refold`: folds the log a second time, from another start; `wrong_start`: finds the snapshot that made both differ;
//! - `root_check`: names what happened to a root whose log does not continue;
//! - `as_of`: a view of the store in which the log ends earlier;
//! - `shared_fold`: a seam for simulations.

mod anchor;
pub(crate) mod as_of;
pub(crate) mod beginning;
mod bundle;
pub(crate) mod checksums;
pub(crate) mod fitting;
pub(crate) mod follow;
pub(crate) mod frames;
pub(crate) mod inputs;
pub(crate) mod locate;
mod located_steps;
mod open;
pub(crate) mod refold;
pub(crate) mod retrying;
pub(crate) mod root_check;
mod self_check;
pub(crate) mod shared_fold;
pub(crate) mod snapshot_search;
mod tail;
#[cfg(test)]
mod tests;
pub(crate) mod window;
mod wrong_start;
