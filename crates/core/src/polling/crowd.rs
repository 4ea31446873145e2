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

/// Polls per second of all starved followers together. Each reads at most one bundle, and at most one record or the one
/// that proves the bundle: they are under two prefixes, each of which allows 5,500 reads per second.
const POLLS_PER_SECOND: u32 = 4700;
/// Records per second that all followers together compare with the log after they took them from bundles.
const COMPARED_PER_SECOND: u32 = 100;
/// Most records that are read one by one after a refused bundle; the first time it is one.
const RECORDS_MAX: u32 = 8;
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
/// Missing bundles in a row after which one record is read.
const MISSING_MAX: u32 = 3;
/// A follower that reads single records and has not seen a bundle or the head for this time reads all records at once:
/// the fewer followers, the sooner, since each then reads many.
const BEHIND_AFTER: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(30));
/// The parts of that time between which followers that fell behind together are spread.
const BEHIND_PARTS: (f64, f64) = (0.6, 1.6);
/// Followers per second of that time.
const BEHIND_FOLLOWERS: u32 = 300;
/// Expected records from which on an unchanged log is a pause of its writers, which does not count in the rate.
const PAUSED: f64 = 4.0;

/// The next read of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRead {
    /// The record after the last folded one.
    Record,
    /// All records up to the head: bundles are missing, and single records do not reach it.
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
    /// Whether a single record was read since a bundle or the head was seen, and when that was.
    single: bool,
    fresh: Duration,
    /// Whether that record was read because bundles were missing, so that others are behind it.
    behind: bool,
    /// Records to read before the next bundle, and how many after the next refused one.
    records: u32,
    records_next: u32,
}

impl CrowdReads {
    /// Returns what one of `followers` reads of a log folded up to `next`, exclusively.
    pub fn next(&self, next: Version, followers: u32, now: Duration) -> NextRead {
        if self.records > 0 {
            return NextRead::Record;
        }
        let behind = (Duration::from_secs(1) * followers / BEHIND_FOLLOWERS)
            .clamp(BEHIND_AFTER.0, BEHIND_AFTER.1);
        // Followers began to read single records together; the fraction of a second spreads them.
        let spread = f64::from(self.fresh.subsec_nanos()) / 1e9;
        let behind = behind.mul_f64(BEHIND_PARTS.0 + (BEHIND_PARTS.1 - BEHIND_PARTS.0) * spread);
        if self.single && now.saturating_sub(self.fresh) > behind {
            return NextRead::Head;
        }
        if self.missed >= MISSING_MAX || self.is_rare(followers) {
            return NextRead::Record;
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
    fn is_rare(&self, followers: u32) -> bool {
        self.seen[0] >= RARE_AFTER && self.rate() * f64::from(followers) < RECORD_READS_PER_SECOND
    }

    /// Notes what a read at `now` gave; the log is folded up to `next`, exclusively, and has `steps`.
    pub fn note(&mut self, read: NextRead, gave: Gave, next: Version, steps: u64, now: Duration) {
        if gave == Gave::Records {
            // A record that is read because bundles do not help has others behind it.
            let one = read == NextRead::Record;
            let behind = one && (self.records > 0 || self.missed >= MISSING_MAX);
            self.behind = behind;
            if self.records > 0 && one {
                self.records -= 1;
            } else if one {
                self.single = true;
            } else {
                (self.single, self.fresh) = (false, now);
            }
            if matches!(read, NextRead::Bundle(_)) {
                self.records_next = 0;
            }
            self.missed = 0;
            return self.note_records((next, steps), !behind, now);
        }
        (self.gain, self.behind) = (GAIN.0, false);
        match read {
            NextRead::Record | NextRead::Head => {
                // This is the head: bundles were expected too early.
                (self.missed, self.single, self.fresh) = (0, false, now);
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

    /// Notes that a bundle was refused. The next one may be good, and readers of records fall behind where only
    /// bundles keep up.
    pub fn note_refused(&mut self) {
        self.records = self.records_next.clamp(1, RECORDS_MAX);
        self.records_next = 2 * self.records;
    }

    /// Notes records; `newest`: the last of them may be the newest.
    fn note_records(&mut self, (next, steps): (Version, u64), newest: bool, now: Duration) {
        if newest && (self.missing > 0 || self.head.is_none()) {
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
        let least = Duration::from_secs(1) * followers / POLLS_PER_SECOND;
        let [_, steps, seconds] = self.seen;
        let ahead = match lead {
            // The record may have others behind it.
            _ if self.records > 0 || self.behind || (self.single && self.is_rare(followers)) => {
                Duration::ZERO
            }
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
            pause.mul_f64(AGAIN_PART).max(least)
        } else {
            pause
        }
    }
}

/// Returns the pause until one of `followers` compares another record that it took from a bundle; `draw` is any number
/// from 0 to 1.
pub fn compare_pause(followers: u32, draw: f64) -> Duration {
    let mean = Duration::from_secs(1) * followers / COMPARED_PER_SECOND;
    mean.mul_f64(0.5 + draw.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
