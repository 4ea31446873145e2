//! Intervals at which a follower polls the head of the log: short while a rank waits for the next step,
//! long while enough is read ahead, and bounded so that all followers together do not exhaust the request
//! rate of one key. Pure: the caller passes the jitter.

mod crowd;
mod quick;

use std::time::Duration;

pub use crowd::{CROWD, CrowdReads, Gave, NextRead, compare_pause};
pub use quick::QuickPolls;

use crate::manifest::Manifest;

/// Polls per second of all followers together. A prefix allows 5,500 reads per second; each new record
/// costs a follower a second read, and writers read there too.
pub const POLLS_PER_SECOND: u32 = 2000;

/// The interval while a rank waits for its job or attempt.
const HURRIED: Duration = Duration::from_millis(100);
/// The least factor of the jitter, and its range.
const JITTER: (f64, f64) = (0.75, 0.5);

/// The bounds of one follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollSchedule {
    /// The interval while a rank waits for a step.
    pub starved: Duration,
    /// The interval while at least `steps_ahead` steps are read ahead.
    pub idle: Duration,
    pub steps_ahead: u64,
}

/// The state of a follower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PollState {
    /// Steps from the rank nearest to the head up to the head; `None` without ranks.
    pub lead: Option<u64>,
    /// Whether a rank waits for its job or attempt to be opened.
    pub hurry: bool,
    /// The number of followers of the same log, as far as the log shows.
    pub followers: u32,
    /// The interval in place of `starved`, if the follower may poll more often.
    pub quick: Option<Duration>,
}

impl PollSchedule {
    /// Returns the interval to the next poll; `draw` is any number from 0 to 1.
    pub fn pause(&self, now: PollState, draw: f64) -> Duration {
        let crowd = Duration::from_secs(1) * now.followers / POLLS_PER_SECOND;
        let least = now.quick.unwrap_or(self.starved).max(crowd);
        let share = now.lead.map_or(1.0, |lead| {
            (lead as f64 / self.steps_ahead.max(1) as f64).min(1.0)
        });
        let pause = self.idle.mul_f64(share).max(least);
        let pause = if now.hurry {
            pause.min(HURRIED.max(least))
        } else {
            pause
        };
        pause.mul_f64(JITTER.0 + JITTER.1 * draw.clamp(0.0, 1.0))
    }
}

/// Estimates the number of followers, for one with ranks at `own` of the data coordinates: every node of an
/// attempt is assumed to have the same number.
pub fn followers(manifest: &Manifest, own: u32) -> u32 {
    (manifest.coordinates() / own.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: PollSchedule = PollSchedule {
        starved: Duration::from_millis(50),
        idle: Duration::from_secs(2),
        steps_ahead: 64,
    };

    fn pause(lead: Option<u64>, hurry: bool, followers: u32) -> Duration {
        let now = PollState {
            lead,
            hurry,
            followers,
            quick: None,
        };
        LOOKS.pause(now, 0.5)
    }

    #[test]
    fn quick_when_starved_and_lazy_when_full() {
        let ms = Duration::from_millis;
        assert_eq!(pause(Some(0), false, 1), ms(50));
        assert_eq!(pause(Some(16), false, 1), ms(500));
        assert_eq!(pause(Some(1000), false, 1), ms(2000));
        assert_eq!(pause(None, false, 1), ms(2000));
        assert_eq!(pause(None, true, 1), ms(100));
    }

    #[test]
    fn quick_polls_replace_the_shortest_interval_only() {
        let ms = Duration::from_millis;
        let quick = |lead, followers| {
            let now = PollState {
                lead: Some(lead),
                followers,
                quick: Some(ms(12)),
                ..PollState::default()
            };
            LOOKS.pause(now, 0.5)
        };
        assert_eq!(quick(0, 1), ms(12));
        assert_eq!(quick(16, 1), ms(500));
        assert_eq!(quick(0, 100), ms(50), "a crowd keeps to its rate");
    }

    #[test]
    fn a_crowd_polls_within_the_request_rate_of_one_key() {
        for followers in [1, 100, 1000, 10_000, 100_000] {
            for (lead, hurry) in [(Some(0), false), (Some(64), false), (None, true)] {
                let each = pause(lead, hurry, followers).as_secs_f64();
                let all = f64::from(followers) / each;
                assert!(
                    all <= f64::from(POLLS_PER_SECOND) * 1.01,
                    "{followers}: {all}"
                );
            }
        }
        assert_eq!(pause(Some(0), false, 100), Duration::from_millis(50));
    }

    #[test]
    fn jitter_is_a_quarter_each_way() {
        let now = PollState {
            lead: Some(0),
            ..PollState::default()
        };
        assert_eq!(LOOKS.pause(now, 0.0), Duration::from_micros(37_500));
        assert_eq!(LOOKS.pause(now, 1.0), Duration::from_micros(62_500));
    }
}
