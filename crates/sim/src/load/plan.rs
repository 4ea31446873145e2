//! The plan of a load.

use std::time::Duration;

use super::scenario::Scenario;
use crate::policy::PolicyKind;
use crate::store::profile::Profile;

/// From the beginning of the load to the measured time, and in addition one second for this many
/// producers: the readers that catch up use up the request rate of the store.
const SETTLE: Duration = Duration::from_secs(10);
const SETTLED_PER_SECOND: u32 = 50;

/// The plan of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadPlan {
    /// How many producers; some scenarios have a number of their own.
    pub asked: u32,
    /// Entries a second of each, on average.
    pub rate: f64,
    /// The store.
    pub profile: Profile,
    /// How they commit.
    pub policy: PolicyKind,
    /// The case.
    pub scenario: Scenario,
    /// The time that counts.
    pub seconds: u64,
    /// Feeds all that is random.
    pub seed: u64,
}

impl LoadPlan {
    pub(super) fn producers(&self) -> u32 {
        self.scenario.producers(self.asked)
    }

    pub(super) fn settle(&self) -> Duration {
        SETTLE.max(Duration::from_secs(1) * self.producers() / SETTLED_PER_SECOND)
    }

    /// How long they produce.
    pub(super) fn whole(&self) -> Duration {
        self.settle() + Duration::from_secs(self.seconds)
    }
}
