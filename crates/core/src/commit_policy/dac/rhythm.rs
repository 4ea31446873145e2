//! Intervals of a leader's rounds and a follower's announcements, from the latencies and the number of active
//! producers.

use std::time::Duration;

use super::Dac;

/// Requests per second, of all producers together.
struct Limits {
    intents: u32,
    /// Polls of the log: reads of a record that may not exist yet.
    polls: u32,
    /// Reads of new records.
    follows: u32,
    /// Records that all producers may request at the same moment, since many may be new to all of them.
    at_once: u32,
}

/// S3 Standard allows 3,500 writes and 5,500 reads per second and prefix.
const STANDARD: Limits = Limits {
    intents: 1700,
    polls: 700,
    follows: 2000,
    at_once: 1000,
};
/// A store with put latencies of a few milliseconds allows far more: S3 Express One Zone 100,000 writes and
/// 200,000 reads per second.
const FAST: Limits = Limits {
    intents: 20_000,
    polls: 20_000,
    follows: 40_000,
    at_once: 40_000,
};
const FAST_PUT: Duration = Duration::from_millis(12);
/// Bounds of the interval that follows from the put latency.
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

    /// Returns the interval at which all active producers together make `per_second` requests.
    fn turn(&self, per_second: u32) -> Duration {
        Duration::from_secs(1) * self.view.active() / per_second
    }

    /// Returns the interval between a leader's rounds.
    pub(super) fn pace(&self) -> Duration {
        let readers = self.turn(self.limits().follows);
        self.own_pace().max(self.options.target).max(readers)
    }

    /// Returns the least interval between polls of a producer that has announced entries.
    pub(super) fn poll_every(&self) -> Duration {
        self.turn(self.limits().polls)
    }

    pub(super) fn reads_at_once(&self) -> u32 {
        self.limits().at_once
    }

    /// Returns the time that the target leaves for collecting items.
    pub(super) fn collect(&self) -> Duration {
        self.options.target.saturating_sub(self.own_pace())
    }

    /// Returns the interval between announcements.
    pub(super) fn linger(&self) -> Duration {
        self.turn(self.limits().intents).max(self.collect())
    }
}
