//! How often a leader writes and a follower announces, from the latencies and the number of active
//! producers.

use std::time::Duration;

use super::Dac;

/// Requests a second, of all producers.
struct Limits {
    intents: u32,
    /// Looks at the log, each a read of a record that may not be there yet.
    looks: u32,
    /// Reads of new records.
    follows: u32,
    /// Records that all may ask for at the same moment; many may have come that nobody knows of yet.
    at_once: u32,
}

/// S3 Standard gives 3,500 writes and 5,500 reads a prefix.
const STANDARD: Limits = Limits {
    intents: 1700,
    looks: 700,
    follows: 2000,
    at_once: 1000,
};
/// A store with put latencies of a few milliseconds gives far more: S3 Express One Zone 100,000
/// and 200,000.
const FAST: Limits = Limits {
    intents: 20_000,
    looks: 20_000,
    follows: 40_000,
    at_once: 40_000,
};
const FAST_PUT: Duration = Duration::from_millis(12);
/// Bounds of the pace that follows from the put latency.
const PACE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Dac {
    pub(super) fn own_pace(&self) -> Duration {
        // About 57 ms for S3 Standard: less than a list and a put take.
        (self.view.link.put() * 3 / 2).clamp(PACE.0, PACE.1)
    }

    fn limits(&self) -> Limits {
        if self.view.link.put() < FAST_PUT {
            FAST
        } else {
            STANDARD
        }
    }

    /// Time in which each active producer makes one of so many requests a second.
    fn turn(&self, per_second: u32) -> Duration {
        Duration::from_secs(1) * self.view.active() / per_second
    }

    /// Time from one round of a leader to the next.
    pub(super) fn pace(&self) -> Duration {
        let readers = self.turn(self.limits().follows);
        self.own_pace().max(self.options.target).max(readers)
    }

    /// Least time between looks at the log of one that has announced.
    pub(super) fn look_every(&self) -> Duration {
        self.turn(self.limits().looks)
    }

    pub(super) fn looked_at_once(&self) -> u32 {
        self.limits().at_once
    }

    /// What the target leaves for collecting.
    pub(super) fn collect(&self) -> Duration {
        self.options.target.saturating_sub(self.own_pace())
    }

    /// Time between announcements.
    pub(super) fn linger(&self) -> Duration {
        self.turn(self.limits().intents).max(self.collect())
    }
}
