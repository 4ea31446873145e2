//! Polls of a starved follower that are more frequent than its configured interval: as often as the store answers,
//! within a number per hour that bounds their cost. Pure: the caller passes times.

use std::time::Duration;

const HOUR: Duration = Duration::from_hours(1);
/// The pause between two quick polls in durations of a read, and the least one.
const PART_OF_READ: f64 = 0.5;
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The weight of a new duration in the mean.
const WEIGHT: f64 = 0.125;

/// The quick polls of one follower.
#[derive(Debug, Clone, PartialEq)]
pub struct QuickPolls {
    per_hour: u32,
    /// Polls that may be made now, and when they were counted.
    left: (f64, Duration),
    /// The mean duration of a read in seconds.
    read: Option<f64>,
}

impl QuickPolls {
    /// Returns a full budget of this many polls.
    pub fn new(per_hour: u32, now: Duration) -> Self {
        Self {
            per_hour,
            left: (f64::from(per_hour), now),
            read: None,
        }
    }

    /// Notes how long a poll that found nothing took.
    pub fn note_read(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let blended = |mean| mean + (seconds - mean) * WEIGHT;
        self.read = Some(self.read.map_or(seconds, blended));
    }

    /// Returns the pause to a quick poll if there is a budget for one, in place of the pause `starved`.
    pub fn pause(&mut self, starved: Duration, now: Duration) -> Option<Duration> {
        let (left, at) = self.left;
        let most = f64::from(self.per_hour);
        let earned = most * now.saturating_sub(at).as_secs_f64() / HOUR.as_secs_f64();
        self.left = ((left + earned).min(most), now);
        let pause = Duration::try_from_secs_f64(self.read? * PART_OF_READ)
            .ok()?
            .max(PAUSE_MIN);
        (pause < starved && self.left.0 >= 1.0).then_some(pause)
    }

    /// Takes a poll from the budget.
    pub fn take(&mut self) {
        self.left.0 = (self.left.0 - 1.0).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARVED: Duration = Duration::from_millis(50);

    /// Polls from one time to another, each read taking `read`; returns the numbers of quick and other polls.
    fn poll(quick: &mut QuickPolls, (from, to): (f64, f64), read: Duration) -> (u32, u32) {
        let (mut now, mut counts) = (Duration::from_secs_f64(from), (0, 0));
        while now.as_secs_f64() < to {
            quick.note_read(read);
            if let Some(pause) = quick.pause(STARVED, now) {
                quick.take();
                counts.0 += 1;
                now += pause;
            } else {
                counts.1 += 1;
                now += STARVED;
            }
            now += read;
        }
        counts
    }

    #[test]
    fn polls_follow_the_durations_of_reads_within_the_budget_of_an_hour() {
        let read = Duration::from_millis(30);
        let mut quick = QuickPolls::new(7_200, Duration::ZERO);
        let (first, _) = poll(&mut quick, (0.0, 60.0), read);
        assert!((1_300..=1_340).contains(&first), "every 45 ms: {first}");
        // The rest of the budget and what an hour adds, whatever the wait.
        let (later, others) = poll(&mut quick, (60.0, 3_660.0), read);
        assert!((5_900..=13_300).contains(&later), "{later}");
        assert!(others > 30_000, "{others}");
        let all = f64::from(first + later);
        assert!(all <= 7_200.0 * (1.0 + 3_660.0 / 3_600.0) + 2.0, "{all}");
    }

    #[test]
    fn without_a_budget_or_with_slow_reads_the_interval_stays() {
        let (read, slow) = (Duration::from_millis(30), Duration::from_millis(200));
        let none = poll(&mut QuickPolls::new(0, Duration::ZERO), (0.0, 10.0), read);
        assert_eq!(none.0, 0);
        let mut quick = QuickPolls::new(1_000, Duration::ZERO);
        assert_eq!(
            quick.pause(STARVED, Duration::ZERO),
            None,
            "no read is known"
        );
        assert_eq!(poll(&mut quick, (0.0, 10.0), slow).0, 0);
        let mut near = QuickPolls::new(1_000, Duration::ZERO);
        near.note_read(Duration::from_micros(100));
        assert_eq!(near.pause(STARVED, Duration::ZERO), Some(PAUSE_MIN));
    }
}
