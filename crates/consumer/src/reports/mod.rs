//! Objects that this node stores about its ranks: `progress` for reclaimers and producers, and
//! `heartbeat` for jobs with a lease.

pub(crate) mod heartbeat;
pub(crate) mod progress;
