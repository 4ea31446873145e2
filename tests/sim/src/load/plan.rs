//! The plan of a load and its phases.

use std::time::Duration;

use super::scenario::Scenario;
use crate::policy::PolicyKind;
use crate::store::manifest::ManifestPlan;
use crate::store::profile::Profile;

/// From the beginning of the load to the measured time, and in addition one second for this many
/// producers: the readers that catch up use up the request rate of the store.
const SETTLE: Duration = Duration::from_secs(10);
const SETTLED_PER_SECOND: u32 = 50;

/// The plan of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadPlan {
    /// The number of producers asked for; some scenarios have their own.
    pub asked: u32,
    /// Mean entries per second of each producer.
    pub rate: f64,
    pub profile: Profile,
    pub policy: PolicyKind,
    pub manifest: ManifestPlan,
    /// Keys have no room for copies of intents.
    pub short_keys: bool,
    pub scenario: Scenario,
    /// The duration of the measured time, in seconds.
    pub seconds: u64,
    /// The seed of all random draws.
    pub seed: u64,
}

impl LoadPlan {
    pub(super) fn producers(&self) -> u32 {
        self.scenario.producers(self.asked)
    }

    pub(super) fn settle(&self) -> Duration {
        SETTLE.max(Duration::from_secs(1) * self.producers() / SETTLED_PER_SECOND)
    }

    /// Returns the time during which producers make entries.
    pub(super) fn whole(&self) -> Duration {
        self.settle() + Duration::from_secs(self.seconds)
    }
}
