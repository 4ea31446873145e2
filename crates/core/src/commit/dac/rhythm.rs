//! How often a leader writes and a follower announces, from the latencies and the number of active
//! producers.

use std::time::Duration;

use super::Dac;

/// Intents a second, of all producers.
const INTENTS_PER_SECOND: u32 = 1500;
/// Looks at the log a second, of all producers.
const LOOKS_PER_SECOND: u32 = 1000;
/// Reads of new records a second, of all producers: S3 Standard gives 5,500 a prefix, a store with
/// put latencies of a few milliseconds far more.
const FOLLOWS_PER_SECOND: u32 = 2000;
const FOLLOWS_PER_SECOND_FAST: u32 = 40_000;
const FAST: Duration = Duration::from_millis(12);
/// Bounds of the pace that follows from the put latency.
const PACE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Dac {
    pub(super) fn own_pace(&self) -> Duration {
        // About 75 ms for S3 Standard.
        (self.view.link.put() * 2).clamp(PACE.0, PACE.1)
    }

    /// Time from one round of a leader to the next.
    pub(super) fn pace(&self) -> Duration {
        let fast = self.view.link.put() < FAST;
        let follows = if fast {
            FOLLOWS_PER_SECOND_FAST
        } else {
            FOLLOWS_PER_SECOND
        };
        let readers = Duration::from_secs(1) * self.view.active() / follows;
        self.own_pace().max(self.options.target).max(readers)
    }

    /// Least time between looks at the log of one that has announced; each costs a read of a record
    /// that is not there yet.
    pub(super) fn look_every(&self) -> Duration {
        Duration::from_secs(1) * self.view.active() / LOOKS_PER_SECOND
    }

    /// What the target leaves for collecting.
    pub(super) fn collect(&self) -> Duration {
        self.options.target.saturating_sub(self.own_pace())
    }

    /// Time between announcements.
    pub(super) fn linger(&self) -> Duration {
        let intents = Duration::from_secs(1) * self.view.active() / INTENTS_PER_SECOND;
        intents.max(self.collect())
    }
}
