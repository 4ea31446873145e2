//! Snapshots, index segments and bundles: copies of the log's content, written beside it.
//!
//! - `state`: the copies that are known, and when the next snapshot is due;
//! - `schedule`: starts a write when one is due;
//! - `writer`: writes one snapshot and the segments before it;
//! - `bundles`: writes the newest records into one object while a crowd follows the log;
//! - `put`: creates one copy, replacing damaged bytes.

pub(crate) mod bundle_state;
pub(crate) mod bundles;
pub(crate) mod put;
mod schedule;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod writer;
