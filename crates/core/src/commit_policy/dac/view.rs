//! The log as a producer sees it: the leader, the number of active producers, other writers' latencies, and
//! whether there is another writer at all.

use std::time::Duration;

use super::super::SeenRecord;
use super::activity::Activity;
use super::constants::{BELIEVED_FOR, BURST, CROWD, IDLE_FOR, READ_ON, STAY_FOR};
use super::link::Link;

/// Seconds over which the rate of records is averaged, approximately.
const RATE_OVER: f64 = 2.0;

/// Upper bound of a leader's interval: a longer silence is not its rhythm.
const GAP_MAX: Duration = Duration::from_secs(2);

/// The producer that leads at present, as far as the log shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leader {
    writer: u64,
    /// The time at which its last record was seen.
    pub(super) seen: Duration,
    /// The interval between its records.
    pub(super) gap: Duration,
    /// It committed a burst, so it stays through silence.
    stays: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) link: Link,
    pub(super) leader: Option<Leader>,
    /// Versions seen, own ones included.
    pub(super) versions: u64,
    /// Records of other writers per second.
    rate: f64,
    /// The time of the last read.
    read: Duration,
    /// Additional records to expect, since the last poll found more than twice its expectation.
    more: u64,
    /// Consecutive own wins without a record of another writer.
    pub(super) streak: u32,
    activity: Activity,
}

impl View {
    /// `versions` is any number, so that producers list intents at different versions.
    pub(super) fn new(versions: u64) -> Self {
        Self {
            versions,
            ..Self::default()
        }
    }

    /// Returns the number of active producers, this one included.
    pub(super) fn active(&self) -> u32 {
        self.activity.count() as u32
    }

    /// Returns whether many producers commit all the time.
    pub(super) fn is_crowd(&self) -> bool {
        self.activity.is_crowd(CROWD)
    }

    /// Returns whether the leader wrote a record lately; `pace` is the longest interval between its records.
    pub(super) fn is_fresh(&self, now: Duration, pace: Duration) -> bool {
        self.leader.is_some_and(|leader| {
            let patience = self.link.patience() + pace.max(leader.gap);
            now.saturating_sub(leader.seen) < patience
        })
    }

    /// Returns whether a leader wrote lately, or stays through silence.
    pub(super) fn is_remembered(&self, now: Duration) -> bool {
        self.leader
            .is_some_and(|leader| now.saturating_sub(leader.seen) < BELIEVED_FOR)
            || self.stays(now).is_some()
    }

    /// Returns the time of the last record of a leader that stays through silence.
    pub(super) fn stays(&self, now: Duration) -> Option<Duration> {
        // A slow producer reads too rarely to recognize a silence.
        let stays = |l: &Leader| l.stays && now.saturating_sub(l.seen) < STAY_FOR;
        let leader = self.leader.filter(|_| self.link.may_lead());
        leader.filter(stays).map(|leader| leader.seen)
    }

    /// Returns the number of records to expect now, so that all producers together request at most `at_once`.
    pub(super) fn expected(&self, now: Duration, at_once: u32) -> u64 {
        let expected = if let Some(leader) = self.leader {
            let gap = leader.gap.max(Duration::from_millis(1));
            let elapsed = now.saturating_sub(leader.seen);
            (elapsed.as_micros() / gap.as_micros()) as u64
        } else {
            (self.rate * now.saturating_sub(self.read).as_secs_f64()) as u64
        };
        // One more shows whether there are more.
        let most = u64::from(at_once / self.active()).clamp(4, 128);
        (expected + self.more + 1).clamp(1, most)
    }

    /// Returns when an idle producer should read the log again.
    pub(super) fn read_on(&self) -> Option<Duration> {
        let seconds = READ_ON / self.rate;
        (seconds < IDLE_FOR.as_secs_f64()).then(|| self.read + Duration::from_secs_f64(seconds))
    }

    /// Notes a read of `records` records of other writers where `expected` were expected.
    pub(super) fn read(&mut self, now: Duration, expected: u64, records: u64) {
        self.more = if records > 2 * expected { expected } else { 0 };
        let since = now.saturating_sub(self.read).as_secs_f64().max(1e-3);
        let weight = since / (since + RATE_OVER);
        self.rate += weight * (records as f64 / since - self.rate);
        self.read = now;
    }

    /// Notes an own record with entries of `others`.
    pub(super) fn won(&mut self, now: Duration, others: &[u64], period: Duration) {
        self.streak += 1;
        self.versions += 1;
        self.activity.note(now, others, period);
    }

    /// Notes records of other writers and returns the number of leaders' records. `pace` is the first estimate
    /// of a leader's interval; a producer without records for `period` is not active.
    pub(super) fn note(
        &mut self,
        now: Duration,
        records: &[SeenRecord],
        pace: Duration,
        period: Duration,
    ) -> u32 {
        for record in records {
            self.streak = 0;
            self.versions += 1;
            self.link.report(record);
            self.activity.note(now, &record.producers, period);
        }
        let led = records.iter().filter(|r| r.leads).count() as u32;
        if let Some(last) = records.iter().rev().find(|r| r.leads) {
            let known = self.leader.filter(|leader| leader.writer == last.writer);
            let gap = known.map_or(pace, |leader| {
                let sample = (now.saturating_sub(leader.seen) / led).min(GAP_MAX);
                (leader.gap * 3 + sample) / 4
            });
            let many = |r: &SeenRecord| r.leads && r.producers.len() > BURST;
            let stays = records.iter().any(many) || known.is_some_and(|leader| leader.stays);
            self.leader = Some(Leader {
                writer: last.writer,
                seen: now,
                gap,
                stays,
            });
        }
        let stepped_down = |leader: &Leader| {
            let last = records.iter().rev().find(|r| r.writer == leader.writer);
            last.is_some_and(|record| !record.leads)
        };
        self.leader = self.leader.filter(|leader| !stepped_down(leader));
        led
    }
}
