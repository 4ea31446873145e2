//! The report of `batchweave-producer --stages FILE`, which `batchweave stage` reads: the stages of a configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The first word of the producer's command line that prints the stages of a configuration, whose path follows.
pub const STAGES: &str = "--stages";

/// The stages of a configuration, and the stream that it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfiguredStages {
    /// The fingerprint of the tokenizer and the form of slices, as stream.json has it.
    pub fingerprint: String,
    /// Slices, rows per slice and tokens per row of the stream.
    pub shape: [u32; 3],
    pub stages: Vec<ConfiguredStage>,
}

/// A stage of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfiguredStage {
    pub name: String,
    pub rows_per_slice: u32,
    pub seq_len: u32,
    /// How its slices differ from plain rows; empty where they do not.
    pub form: String,
    /// SHA-256 over the settings that decide its bytes, in hexadecimal.
    pub fingerprint: String,
    /// The weights of sources that begin with it; empty to go on with those in force.
    pub weights: BTreeMap<String, f64>,
}
