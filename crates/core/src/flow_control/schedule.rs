//! When a producer reads the jobs' positions next. Pure: the caller passes times and the jitter.
//!
//! Producers commit at most their bound per read that sees progress, so the interval of these reads bounds their
//! speed. While a job advances, its position is read each time it has used an eighth of its lead at its measured
//! rate. While it stands still, the pause grows to an eighth of the time since its last progress.
//!
//! Cost: at most 8 reads per lead of steps of an advancing job, and one more per hold. Before the jitter each producer
//! pauses for twice the time that its read took, half a second at most, so one reads as often as its store is fast. Up to
//! 100 producers together read about 200 to 400 times per second at most, and each of more than that twice per second.
//! Where the store tells of new positions, each pauses for twice the time of its read only.

use std::time::Duration;

/// The parts of its lead after which the position of an advancing job is read.
const READS_PER_LEAD: f64 = 8.0;
/// The part of the time since the last progress after which the position of a resting job is read.
const QUIET_SHARE: u32 = 8;
/// The range of the pause of a job that rests or is slow.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// The shortest pause of a lone producer.
const PAUSE_LEAST: Duration = Duration::from_millis(1);
/// The part of the shortest pause for each further producer of the stream.
const PAUSE_PER_PRODUCER: Duration = Duration::from_millis(5);
/// The shortest pause, in durations of the last read.
const PAUSE_PER_READ: u32 = 2;
/// The least factor of the jitter, and its range.
const JITTER: (f64, f64) = (0.75, 0.5);

/// The result of one read of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionRead {
    pub began: Duration,
    pub ended: Duration,
    /// Steps that the slowest job had left when the read began, by its position before.
    pub lead: u64,
    /// Steps by which a job had advanced since its position before.
    pub progress: u64,
    /// Producers that may commit to the stream, and read as this one does.
    pub producers: usize,
}

/// The end of a read, and the shortest pauses after it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LastRead {
    ended: Duration,
    before_hold: Duration,
    before_hint: Duration,
}

/// The times of one producer's reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PositionSchedule {
    due: Duration,
    last: Option<LastRead>,
    /// Since when no read has seen progress.
    quiet_since: Duration,
    /// The last read that saw progress.
    progressed: Option<Duration>,
    /// Steps per second of an advancing job; 0 while unknown.
    rate: f64,
    near: bool,
    held: bool,
}

impl PositionSchedule {
    /// Notes that all bounds are far: nothing is read.
    pub fn note_far(&mut self) {
        (self.near, self.held) = (false, false);
    }

    /// Notes that a bound is near, and whether it holds back a commit; returns when the next read is due.
    pub fn note_near(&mut self, now: Duration, held: bool) -> Duration {
        if !std::mem::replace(&mut self.near, true) {
            self.quiet_since = now;
        }
        // The first read of a hold does not wait for a pause that was chosen before it.
        if !std::mem::replace(&mut self.held, held)
            && held
            && let Some(last) = self.last
        {
            self.due = self.due.min(last.ended + last.before_hold);
        }
        self.due
    }

    /// Notes that the store tells of new positions: they are read after twice the time of the last read.
    pub fn note_hint(&mut self) {
        if let Some(last) = self.last {
            self.due = self.due.min(last.ended + last.before_hint);
        }
    }

    /// Notes a read and plans the next one; `draw` is any number from 0 to 1.
    pub fn note_read(&mut self, read: PositionRead, draw: f64) {
        let now = read.ended;
        if read.progress > 0 {
            self.measure(read);
            self.quiet_since = now;
        }
        let producers = u32::try_from(read.producers).unwrap_or(u32::MAX);
        let rest = (now.saturating_sub(read.began) * PAUSE_PER_READ).min(PAUSE.0);
        let least = PAUSE_PER_PRODUCER
            .saturating_mul(producers.saturating_sub(1))
            .max(PAUSE_LEAST)
            .min(PAUSE.0)
            .max(rest);
        let share = if self.rate > 0.0 {
            let seconds = read.lead as f64 / READS_PER_LEAD / self.rate;
            Duration::try_from_secs_f64(seconds).unwrap_or(PAUSE.0)
        } else {
            PAUSE.0
        };
        let quiet = now.saturating_sub(self.quiet_since) / QUIET_SHARE;
        let pause = quiet.clamp(share.clamp(least, PAUSE.0), PAUSE.1);
        self.last = Some(LastRead {
            ended: now,
            before_hold: least,
            before_hint: rest,
        });
        self.due = now + pause.mul_f64(JITTER.0 + JITTER.1 * draw.clamp(0.0, 1.0));
    }

    /// Measures the rate of a job that has advanced. A job that paused, as for a checkpoint, is slow by this
    /// measure once: so the rate falls by half at most.
    fn measure(&mut self, read: PositionRead) {
        if let Some(before) = self.progressed.replace(read.ended) {
            let seconds = read.ended.saturating_sub(before).as_secs_f64();
            let measured = read.progress as f64 / seconds.max(1e-6);
            self.rate = measured.max(self.rate / 2.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    const LEAD: u64 = 16;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// Returns the times of a held producer's reads within a range; each takes `took`, and the job has used up its
    /// steps `cycle` after it got them.
    fn reads(
        schedule: &mut PositionSchedule,
        within: Range<Duration>,
        took: Duration,
        producers: usize,
        cycle: impl Fn(Duration) -> Option<Duration>,
    ) -> Vec<Duration> {
        let (mut now, mut given) = (within.start, within.start);
        let mut all = Vec::new();
        while now < within.end {
            now = now.max(schedule.note_near(now, true));
            let began = now;
            now += took;
            let advanced = cycle(now).is_some_and(|cycle| now >= given + cycle);
            if advanced {
                given = now;
            }
            all.push(began);
            let read = PositionRead {
                began,
                ended: now,
                lead: LEAD,
                progress: if advanced { LEAD } else { 0 },
                producers,
            };
            schedule.note_read(read, 0.5);
            if advanced {
                schedule.note_near(now, false);
            }
        }
        all
    }

    #[test]
    fn a_fast_job_is_read_when_its_next_progress_is_due() {
        let mut schedule = PositionSchedule::default();
        let within = Duration::ZERO..Duration::from_secs(10);
        let fast = |_| Some(ms(20.0));
        let all = reads(&mut schedule, within, ms(0.5), 1, fast);
        let late: Vec<_> = all
            .iter()
            .filter(|at| **at > Duration::from_secs(5))
            .collect();
        let widest = late
            .windows(2)
            .map(|pair| pair[1].saturating_sub(*pair[0]))
            .max();
        assert!(widest < Some(ms(7.0)), "{widest:?}");
        // 5 s are 250 leads of steps.
        assert!((250..250 * 9).contains(&late.len()), "{}", late.len());
    }

    #[test]
    fn reads_are_bounded_by_their_own_time_and_by_the_number_of_producers() {
        for (took, producers, least) in [
            (0.1, 1, 1.0),
            (40.0, 1, 80.0),
            (1.0, 41, 200.0),
            (1.0, 9000, 500.0),
        ] {
            let mut schedule = PositionSchedule::default();
            let within = Duration::ZERO..Duration::from_secs(20);
            let all = reads(&mut schedule, within, ms(took), producers, |_| {
                Some(ms(1.0))
            });
            for pair in all.windows(2).skip(1) {
                let pause = pair[1].saturating_sub(pair[0] + ms(took));
                assert!(
                    pause >= ms(least * 0.99),
                    "{pause:?} for {took} {producers}"
                );
            }
        }
    }

    #[test]
    fn a_job_that_stands_still_is_read_ever_more_rarely_and_one_that_resumes_at_its_old_rate() {
        let mut schedule = PositionSchedule::default();
        let stops = |now: Duration| (now < Duration::from_secs(5)).then(|| ms(20.0));
        let hour = Duration::from_hours(1);
        let within = Duration::ZERO..hour;
        let all = reads(&mut schedule, within, ms(0.5), 1, stops);
        let quiet = all
            .iter()
            .filter(|at| **at > Duration::from_secs(6))
            .count();
        assert!((300..500).contains(&quiet), "{quiet} reads in an hour");
        let again = hour..hour + Duration::from_secs(30);
        let all = reads(&mut schedule, again, ms(0.5), 1, |_| Some(ms(20.0)));
        let first = all[1];
        let soon = all.iter().filter(|at| **at < first + ms(100.0)).count();
        assert!(soon > 10, "{soon} reads in 100 ms after the job resumed");
    }

    #[test]
    fn a_slow_job_costs_two_reads_per_second_at_most() {
        let mut schedule = PositionSchedule::default();
        let slow = |_| Some(Duration::from_secs(16));
        let within = Duration::ZERO..Duration::from_mins(10);
        let all = reads(&mut schedule, within, ms(0.5), 1, slow);
        // One more for each of 37 holds.
        assert!(all.len() < 1200 + 38, "{}", all.len());
    }

    #[test]
    fn a_hint_is_followed_after_the_time_of_two_reads() {
        let mut schedule = PositionSchedule::default();
        schedule.note_hint();
        assert_eq!(schedule.note_near(ms(0.0), true), ms(0.0));
        let read = PositionRead {
            began: ms(0.0),
            ended: ms(0.1),
            lead: LEAD,
            progress: 0,
            producers: 9,
        };
        schedule.note_read(read, 0.5);
        assert_eq!(schedule.note_near(ms(0.2), true), ms(500.1));
        schedule.note_hint();
        assert_eq!(schedule.note_near(ms(0.2), true), ms(0.3));
    }

    #[test]
    fn a_hold_behind_a_far_bound_is_a_new_one() {
        let mut schedule = PositionSchedule::default();
        let read = PositionRead {
            began: ms(0.0),
            ended: ms(1.0),
            lead: LEAD,
            progress: 0,
            producers: 1,
        };
        assert_eq!(schedule.note_near(ms(0.0), true), ms(0.0));
        schedule.note_read(read, 0.5);
        schedule.note_far();
        assert_eq!(schedule.note_near(ms(2.0), true), ms(3.0));
    }

    #[test]
    fn the_first_read_of_a_hold_does_not_wait_for_a_longer_pause() {
        let mut schedule = PositionSchedule::default();
        let read = PositionRead {
            began: ms(0.0),
            ended: ms(1.0),
            lead: LEAD,
            progress: 0,
            producers: 1,
        };
        assert_eq!(schedule.note_near(ms(0.0), false), ms(0.0));
        schedule.note_read(read, 0.5);
        assert_eq!(schedule.note_near(ms(2.0), false), ms(501.0));
        assert_eq!(schedule.note_near(ms(2.5), true), ms(3.0));
    }
}
