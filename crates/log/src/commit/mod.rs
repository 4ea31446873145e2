//! The commit side: how a producer's entries get into the log.
//!
//! - `task`: the task that takes items from a queue and asks a policy when to commit;
//! - `committer`: carries out a policy's actions for one instance of a producer;
//! - `pending`: the items that wait, and the entries built from them;
//! - `changes`: the mixtures and stages of a producer, as the task passes them on;
//! - `candidates`: chooses the entries of the next record;
//! - `intents`: announces entries, and reads and deletes those of others;
//! - `append`: one try to put a record at the next version;
//! - `resolve`: a create-only put with a definite outcome;
//! - `outcome`: why an instance can commit no more.

pub(crate) mod append;
pub(crate) mod candidates;
pub(crate) mod changes;
pub(crate) mod committer;
pub(crate) mod intents;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod resolve;
pub(crate) mod task;
#[cfg(test)]
mod tests;
