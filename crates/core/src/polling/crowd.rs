//! Chooses the next bundle that a follower reads, when thousands follow the log and cannot read each record.
//!
//! The newest bundle is not known, so the follower expects a head: by the rate of records that it has seen, and a
//! little more after each bundle that it got, until one is missing. Where it expects one record, it reads the record.
//! Pure: the caller passes times.

use std::time::Duration;

use crate::ids::Version;
use crate::limits::BUNDLE_RECORDS;

/// Followers from which on bundles are cheaper than records.
pub const CROWD: u32 = 256;

/// Reads per second of all starved followers together, of bundles and of records. A missing bundle costs another one,
/// many followers wait for the same one, and a prefix allows 5,500 reads per second: with 5,000 the simulator sees 503.
const READS_PER_SECOND: u32 = 4000;
/// Reads per second of all records by all followers that the log's prefix allows beside their polls, and the seen
/// records from which on their rate is known well enough for that.
const RECORD_READS_PER_SECOND: f64 = 2000.0;
const RARE_AFTER: f64 = 4.0;
/// A follower that has steps ahead reads after this part of the time in which these are used up, and at last after
/// `PAUSE_MAX`.
const PART_OF_LEAD: f64 = 0.25;
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The part of the pause after which a follower reads again when a bundle is missing: the same one, if it expected
/// more than a few records, then one of fewer.
const AGAIN_PART: f64 = 0.25;
const FEW: u64 = 3;
/// Records that are expected beyond the rate after a bundle that was there, and how many more each next time.
const GAIN: (f64, f64) = (0.15, 16.0);
const GAIN_GROWTH: f64 = 1.5;
/// The least gain as a part of the expected records.
const GAIN_PART: f64 = 0.04;
/// Records expected beyond the rate after a missing bundle.
const BEYOND_MISSING: f64 = -0.5;
/// The least gain until the rate is trusted.
const GAIN_AT_FIRST: f64 = 4.0;
/// Records of which half are forgotten in the rate, about; and from which on it is trusted.
const MEMORY: f64 = 64.0;
const TRUSTED: f64 = 16.0;
/// Missing bundles in a row after which the log itself is read.
const MISSING_MAX: u32 = 3;
/// Expected records from which on an unchanged log is a pause of its writers, which does not count in the rate.
const PAUSED: f64 = 4.0;

/// The next read of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRead {
    /// The record after the last folded one.
    Record,
    /// All records up to the head: bundles are missing.
    Head,
    /// The bundle whose newest record has this version.
    Bundle(Version),
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gave {
    Records,
    Nothing,
}

/// The state of one follower of a crowd.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CrowdReads {
    /// When a read last gave records, and the version after them.
    last: Duration,
    next: Version,
    /// The head in records and steps when it was last known, and when: at the first read, and at those after a missing one.
    head: Option<(Version, u64, Duration)>,
    /// Sums that forget: records, steps and seconds from one known head to the next.
    seen: [f64; 3],
    /// Records expected beyond the rate, and how many more after the next bundle that is there.
    beyond: f64,
    gain: f64,
    /// Reads in a row that gave nothing, and the most records to expect after them.
    missing: u32,
    /// Bundles that were missing since one was there.
    missed: u32,
    most: Option<Version>,
}

impl CrowdReads {
    /// Returns what to read for a log folded up to `next`, exclusively.
    pub fn next(&self, next: Version, now: Duration) -> NextRead {
        if self.missed >= MISSING_MAX {
            return NextRead::Head;
        }
        let expected = self.expected(now).max(0.0) as Version;
        let most = self.most.unwrap_or(Version::MAX);
        match expected.min(most).min(BUNDLE_RECORDS) {
            0 | 1 => NextRead::Record,
            records => NextRead::Bundle(next + records - 1),
        }
    }

    /// Returns the number of records that have appeared since the last read that gave some.
    fn expected(&self, now: Duration) -> f64 {
        self.rate() * now.saturating_sub(self.last).as_secs_f64() + self.beyond
    }

    /// Records per second; 0 while unknown.
    fn rate(&self) -> f64 {
        let [records, _, seconds] = self.seen;
        if seconds > 0.0 {
            records / seconds
        } else {
            0.0
        }
    }

    /// Whether the rate is measured over enough records.
    fn is_trusted(&self) -> bool {
        self.seen[0] >= TRUSTED
    }

    /// Whether records are so rare that all `followers` can read each of them.
    pub fn is_rare(&self, followers: u32) -> bool {
        self.seen[0] >= RARE_AFTER && self.rate() * f64::from(followers) < RECORD_READS_PER_SECOND
    }

    /// Notes what a read at `now` gave; the log is folded up to `next`, exclusively, and has `steps`.
    pub fn note(
        &mut self,
        read: NextRead,
        gave: Gave,
        (next, steps): (Version, u64),
        now: Duration,
    ) {
        if gave == Gave::Records {
            if read != NextRead::Record {
                self.missed = 0;
            }
            return self.note_records((next, steps), now);
        }
        self.gain = GAIN.0;
        match read {
            NextRead::Record | NextRead::Head => {
                self.missing = self.missing.max(1);
                self.beyond = 0.0;
                if self.head.is_none() || self.seen[2] == 0.0 || self.expected(now) >= PAUSED {
                    (self.head, self.last) = (Some((next, steps, now)), now);
                    self.next = next;
                }
            }
            NextRead::Bundle(last) => {
                self.missing += 1;
                self.missed += 1;
                let asked = (last + 1).saturating_sub(next);
                // At first it is only a little late, if the rate is known.
                let known = self.is_trusted();
                let most = match self.missing {
                    1 if known && asked > FEW => asked,
                    _ => asked / 2,
                };
                self.most = Some(most);
                self.beyond = if known { BEYOND_MISSING } else { most as f64 };
            }
        }
    }

    fn note_records(&mut self, (next, steps): (Version, u64), now: Duration) {
        if self.missing > 0 || self.head.is_none() {
            self.measure((next, steps), now);
        }
        let least = if self.is_trusted() {
            GAIN.0.max(self.expected(now) * GAIN_PART)
        } else {
            GAIN_AT_FIRST
        };
        self.gain = (self.gain * GAIN_GROWTH).max(least).min(GAIN.1);
        let most = self.most.unwrap_or(BUNDLE_RECORDS) as f64;
        let left = self.expected(now).min(most) - next.saturating_sub(self.next) as f64;
        self.beyond = left.max(BEYOND_MISSING) + self.gain;
        (self.last, self.next) = (now, next);
        (self.missing, self.most) = (0, None);
    }

    /// Measures the rate up to a head that is known now.
    fn measure(&mut self, (next, steps): (Version, u64), now: Duration) {
        if let Some((version, before, at)) = self.head {
            let passed = [
                next.saturating_sub(version) as f64,
                steps.saturating_sub(before) as f64,
                now.saturating_sub(at).as_secs_f64(),
            ];
            let kept = (1.0 - passed[0] / MEMORY).max(0.0);
            for (sum, new) in self.seen.iter_mut().zip(passed) {
                *sum = *sum * kept + new;
            }
        }
        self.head = Some((next, steps, now));
    }

    /// Returns the pause to the next read of one of `followers`, with `lead` steps ahead; without jitter.
    pub fn pause(&self, lead: Option<u64>, followers: u32) -> Duration {
        let least = Duration::from_secs(1) * followers / READS_PER_SECOND;
        let [_, steps, seconds] = self.seen;
        let ahead = match lead {
            None => PAUSE_MAX,
            Some(lead) if steps > 0.0 && self.is_trusted() => {
                let pause = lead as f64 * seconds / steps * PART_OF_LEAD;
                Duration::try_from_secs_f64(pause).unwrap_or(PAUSE_MAX)
            }
            // The follower reads as a starved one does until it knows the rate and the head.
            Some(_) => Duration::ZERO,
        };
        let pause = ahead.min(PAUSE_MAX).max(least);
        if self.missed < MISSING_MAX && self.most.is_some_and(|most| most > 1) {
            pause.mul_f64(AGAIN_PART)
        } else {
            pause
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a follower knows the rate.
    const SETTLED: f64 = 45.0;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A small random number for each `n`, from 0 to 1.
    fn draw(n: u64) -> f64 {
        let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as f64 / (1 << 24) as f64
    }

    /// The times at which records appear: `rate` a second, irregular, from 10 s on.
    fn appear(rate: f64, until: f64) -> Vec<f64> {
        let mut at = 10.0;
        let gaps = (0..).map(|n| (0.5 + draw(n)) / rate);
        let times = gaps.map(|gap| {
            at += gap;
            at
        });
        times.take_while(|at| *at < until).collect()
    }

    struct Run {
        /// Reads once the follower has settled.
        reads: usize,
        /// The time from each later record's appearance until it was read.
        delays: Vec<f64>,
    }

    /// One follower of records that appear at these times; bundles exist if `bundles` says so.
    fn follow(
        records: &[f64],
        (lead, followers): (u64, u32),
        (until, seed): (f64, u64),
        bundles: impl Fn(Version) -> bool,
    ) -> Run {
        let (mut crowd, mut now, mut next, mut polls) = (CrowdReads::default(), 0.0, 0, 0);
        let mut run = Run {
            reads: 0,
            delays: Vec::new(),
        };
        while now < until {
            let read = crowd.next(next, seconds(now));
            run.reads += usize::from(now > SETTLED);
            polls += 1;
            let there =
                |version: Version| records.get(version as usize).is_some_and(|at| *at <= now);
            let before = next;
            match read {
                NextRead::Record if there(next) => next += 1,
                NextRead::Head => {
                    while there(next) {
                        next += 1;
                        run.reads += usize::from(now > SETTLED);
                    }
                }
                NextRead::Bundle(last) if there(last) && bundles(last) => next = last + 1,
                _ => {}
            }
            let fresh = records[before as usize..next as usize].iter();
            run.delays
                .extend(fresh.filter(|at| **at > SETTLED).map(|at| now - at));
            let gave = if next > before {
                Gave::Records
            } else {
                Gave::Nothing
            };
            crowd.note(read, gave, (next, next), seconds(now));
            let pause = crowd.pause(Some(lead), followers).as_secs_f64();
            now += pause * (0.9 + 0.2 * draw(seed * 100_000 + polls));
        }
        run.delays.sort_by(f64::total_cmp);
        run
    }

    /// Several followers of the same records: reads per second of 10,000 of them, and the median and 99th percentile of
    /// the delays.
    fn crowd(records: &[f64], lead: u64) -> (f64, f64, f64) {
        let runs: Vec<_> = (0..20)
            .map(|n| follow(records, (lead, 10_000), (600.0, n), |_| true))
            .collect();
        let reads: usize = runs.iter().map(|run| run.reads).sum();
        let mut delays: Vec<_> = runs.into_iter().flat_map(|run| run.delays).collect();
        delays.sort_by(f64::total_cmp);
        let at = |q: usize| delays[delays.len() * q / 100];
        (
            reads as f64 / 20.0 / (600.0 - SETTLED) * 1e4,
            at(50),
            at(99),
        )
    }

    #[test]
    fn ten_thousand_starved_followers_have_each_record_within_four_seconds() {
        for (rate, within) in [(0.3, 8.0), (1.0, 8.0), (2.0, 4.0), (5.0, 5.0)] {
            let (reads, p50, p99) = crowd(&appear(rate, 600.0), 0);
            println!("{rate} records/s: {reads} reads/s, p50 {p50}, p99 {p99}");
            assert!(reads < 5_000.0, "{rate}: {reads} reads per second");
            assert!(p99 < within, "{rate}: p99 {p99}");
        }
    }

    #[test]
    fn followers_with_steps_ahead_read_by_their_lead() {
        let (reads, p50, p99) = crowd(&appear(2.0, 600.0), 64);
        println!("{reads} reads/s, p50 {p50}, p99 {p99}");
        assert!(reads < 1_700.0, "{reads} reads per second");
        // Half of the lead is left.
        assert!(p99 < 16.0, "p99 {p99}");
    }

    #[test]
    fn without_bundles_each_record_is_read_and_a_pause_costs_one_read_at_a_time() {
        let records = appear(2.0, 300.0);
        let run = follow(&records, (0, 10_000), (320.0, 0), |_| false);
        assert!(run.delays.iter().all(|delay| *delay < 15.0), "it keeps up");
        assert_eq!(
            run.delays.len(),
            records.iter().filter(|at| **at > SETTLED).count()
        );
        let mut crowd = CrowdReads::default();
        for n in 0..10 {
            let now = seconds(f64::from(n));
            let read = crowd.next(5, now);
            assert_eq!(read, NextRead::Record, "nothing is known");
            crowd.note(read, Gave::Nothing, (5, 5), now);
        }
    }

    #[test]
    fn a_follower_that_slept_for_hours_goes_on() {
        let (mut crowd, mut next) = (CrowdReads::default(), 0);
        for at in (0..99).chain([100_000, 100_003]) {
            let now = seconds(f64::from(at));
            let gave = if at % 3 == 0 {
                Gave::Nothing
            } else {
                Gave::Records
            };
            next += 4 * u64::from(gave == Gave::Records);
            crowd.note(crowd.next(next, now), gave, (next, next), now);
        }
        assert!(crowd.gain <= GAIN.1);
    }

    #[test]
    fn after_a_pause_of_the_writers_bundles_are_read_again() {
        let mut records = appear(2.0, 60.0);
        let later: Vec<_> = records.iter().map(|at| at + 200.0).collect();
        records.extend(later);
        let run = follow(&records, (0, 10_000), (300.0, 0), |_| true);
        assert_eq!(
            run.delays.len(),
            records.iter().filter(|at| **at > SETTLED).count()
        );
        assert!(*run.delays.last().unwrap() < 30.0);
    }
}
