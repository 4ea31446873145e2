//! What the log tells a producer that follows it: who leads, how many are active, how fast others
//! are, and whether anybody else is there at all.

use std::time::Duration;

use super::super::SeenRecord;
use super::activity::Activity;
use super::constants::{BELIEVED_FOR, BURST, CROWD, IDLE_FOR, READ_ON, STAY_FOR};
use super::link::Link;

/// Seconds over which the rate of records is taken, about.
const RATE_OVER: f64 = 2.0;

/// A silence is no rhythm.
const GAP_MAX: Duration = Duration::from_secs(2);

/// The producer that combines at present, as far as the log shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leader {
    writer: u64,
    /// When its last record was seen.
    pub(super) seen: Duration,
    /// Time between its records.
    pub(super) gap: Duration,
    /// Whether it has committed as many at once as a burst brings: it stays through silence.
    stays: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) link: Link,
    pub(super) leader: Option<Leader>,
    /// Versions seen, own ones included.
    pub(super) versions: u64,
    /// Foreign records a second, whoever writes them, and when we read last.
    rate: f64,
    read: Duration,
    /// So many more are expected, since the last look had to read twice as many.
    more: u64,
    /// Own wins in a row without a foreign record.
    pub(super) streak: u32,
    activity: Activity,
}

impl View {
    /// `versions`: any number, so that not everybody looks for intents at the same version.
    pub(super) fn new(versions: u64) -> Self {
        Self {
            versions,
            ..Self::default()
        }
    }

    /// Producers active at present, this one included.
    pub(super) fn active(&self) -> u32 {
        self.activity.count() as u32
    }

    /// Whether many commit all the time.
    pub(super) fn is_crowd(&self) -> bool {
        self.activity.is_crowd(CROWD)
    }

    /// Whether the leader has been heard of lately; `pace` is how often one writes at least.
    pub(super) fn is_fresh(&self, now: Duration, pace: Duration) -> bool {
        self.leader.is_some_and(|leader| {
            let patience = self.link.patience() + pace.max(leader.gap);
            now.saturating_sub(leader.seen) < patience
        })
    }

    /// Whether there was a leader lately.
    pub(super) fn is_remembered(&self, now: Duration) -> bool {
        self.leader
            .is_some_and(|leader| now.saturating_sub(leader.seen) < BELIEVED_FOR)
            || self.stays(now).is_some()
    }

    /// When one that stays through silence was heard last, if there is one.
    pub(super) fn stays(&self, now: Duration) -> Option<Duration> {
        // Who is slow has heard little of late, and no silence can be told from that.
        let stays = |l: &Leader| l.stays && now.saturating_sub(l.seen) < STAY_FOR;
        let leader = self.leader.filter(|_| self.link.may_lead());
        leader.filter(stays).map(|leader| leader.seen)
    }

    /// Records to expect when the log is read now; all may look at once, `at_once` records in all.
    pub(super) fn expected(&self, now: Duration, at_once: u32) -> u64 {
        let expected = if let Some(leader) = self.leader {
            let gap = leader.gap.max(Duration::from_millis(1));
            let elapsed = now.saturating_sub(leader.seen);
            (elapsed.as_micros() / gap.as_micros()) as u64
        } else {
            (self.rate * now.saturating_sub(self.read).as_secs_f64()) as u64
        };
        // One more tells whether there is more.
        let most = u64::from(at_once / self.active()).clamp(4, 128);
        (expected + self.more + 1).clamp(1, most)
    }

    /// When so many records should have come that it is time to read them.
    pub(super) fn read_on(&self) -> Option<Duration> {
        let seconds = READ_ON / self.rate;
        (seconds < IDLE_FOR.as_secs_f64()).then(|| self.read + Duration::from_secs_f64(seconds))
    }

    /// Of so many that were expected, so many records of others were read now.
    pub(super) fn read(&mut self, now: Duration, expected: u64, records: u64) {
        self.more = if records > 2 * expected { expected } else { 0 };
        let since = now.saturating_sub(self.read).as_secs_f64().max(1e-3);
        let weight = since / (since + RATE_OVER);
        self.rate += weight * (records as f64 / since - self.rate);
        self.read = now;
    }

    /// A record of ours, with entries of these others.
    pub(super) fn won(&mut self, now: Duration, others: &[u64], period: Duration) {
        self.streak += 1;
        self.versions += 1;
        self.activity.note(now, others, period);
    }

    /// Learns from records of others; returns how many of them lead. `pace`: what a leader's gap is
    /// taken for at first. `period`: who is not heard of for so long is not active.
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
