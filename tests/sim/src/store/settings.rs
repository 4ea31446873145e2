//! The behaviour of a simulated store.

use std::time::Duration;

use super::link::LinkPlan;
use super::manifest::ManifestPlan;
use super::outcome::Rates;
use super::profile::Profile;

/// The parts of a run that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All events and objects.
    All,
    /// Log records, counts, and the hash of the trace.
    Records,
}

/// The settings of a store.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The seed of all random draws.
    pub seed: u64,
    pub profile: Profile,
    pub rates: Rates,
    pub link: LinkPlan,
    /// No faults happen from this time on.
    pub calm_at: Duration,
    pub keep: Keep,
    /// The length of the longest key; it decides whether intents fit into keys.
    pub key_bytes_max: usize,
    /// The size of a version of the manifest.
    pub manifest: ManifestPlan,
}

/// S3's 1,024 bytes less a usual prefix.
pub(crate) const KEY_BYTES_MAX: usize = 960;
/// Names of files, into which no intent fits.
pub(crate) const SHORT_KEY_BYTES_MAX: usize = 255;
