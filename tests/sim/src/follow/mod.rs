//! Thousands of nodes follow one log, each with the real log code and the consumer's polling rule
//! (`batchweave_core::polling`). Measured are the reads of the busiest key, and the time from a
//! record's creation until each node knows it.

mod node;
mod run;
mod shared;
mod writer;

use serde::Serialize;

use crate::store::profile::Profile;

pub use run::run;

/// The plan of a run.
#[derive(Debug, Clone, Copy)]
pub struct FollowPlan {
    pub nodes: u32,
    /// Steps between each node's trainer and the head that it knows.
    pub lead: u64,
    /// Steps per second of the writer.
    pub rate: f64,
    pub profile: Profile,
    /// The duration of the measured time, in seconds.
    pub seconds: u64,
    /// True if the nodes know their number from the log.
    pub aware: bool,
    /// The seed of all random draws.
    pub seed: u64,
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Followed {
    pub nodes: u32,
    /// Steps behind the head.
    pub lead: u64,
    /// True if the nodes knew their number.
    pub aware: bool,
    pub profile: &'static str,
    /// Steps committed in the measured time.
    pub steps: u64,
    /// Mean reads per second of the busiest key.
    pub busiest_key_per_second: f64,
    /// Its reads in the worst second.
    pub busiest_key_peak: u64,
    /// Mean reads per second of records and bundles together.
    pub log_reads_per_second: f64,
    /// Reads below `log/` in the worst second.
    pub records_peak: u64,
    /// Reads below `index/`, which has the bundles, in the worst second.
    pub bundles_peak: u64,
    /// Answers 503 in the measured time.
    pub throttled: u64,
    /// Deliveries of records to nodes: records times nodes, less those still to come.
    pub deliveries: u64,
    /// The median time from a record's creation until a node knows it, in ms.
    pub delivery_p50_ms: f64,
    /// The 99th percentile, in ms.
    pub delivery_p99_ms: f64,
    /// The maximum, in ms.
    pub delivery_max_ms: f64,
    /// The seed of all random draws.
    pub seed: u64,
    /// The fingerprint of the run.
    pub hash: String,
}
