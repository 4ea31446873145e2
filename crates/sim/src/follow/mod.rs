//! Thousands of nodes follow one log, each with the real log code and the consumer's rule of when to
//! look (`batchweave_core::follow`). Measured: reads of the busiest key, and the time from a record's
//! landing in the store until a node knows it.

mod node;
mod run;
mod shared;
mod writer;

use serde::Serialize;

use crate::store::profile::Profile;

pub use run::run;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct FollowPlan {
    /// How many nodes.
    pub nodes: u32,
    /// Steps that each node's trainer is behind the head that it knows.
    pub lead: u64,
    /// Steps a second.
    pub rate: f64,
    /// The store.
    pub profile: Profile,
    /// The time that counts.
    pub seconds: u64,
    /// Whether the nodes know from the log how many they are.
    pub aware: bool,
    /// Feeds all that is random.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Followed {
    /// How many nodes.
    pub nodes: u32,
    /// Steps behind the head.
    pub lead: u64,
    /// Whether they knew how many they are.
    pub aware: bool,
    /// The store.
    pub profile: &'static str,
    /// Steps committed in the time that counts.
    pub steps: u64,
    /// Reads of the busiest key in a second, on average.
    pub busiest_key_per_second: f64,
    /// The same in the worst second.
    pub busiest_key_peak: u64,
    /// Reads of all keys of the log in a second, on average.
    pub log_reads_per_second: f64,
    /// Answers 503 in the time that counts.
    pub throttled: u64,
    /// Records that nodes came to know: records times nodes, less those still on their way.
    pub deliveries: u64,
    /// From landing to known by a node.
    pub delivery_p50_ms: f64,
    /// The same.
    pub delivery_p99_ms: f64,
    /// The same.
    pub delivery_max_ms: f64,
    /// Feeds all that is random.
    pub seed: u64,
    /// Fingerprint of the run.
    pub hash: String,
}
