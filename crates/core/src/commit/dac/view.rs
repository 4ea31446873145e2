//! What the log tells a producer that follows it: who leads, how many are active, how fast others
//! are, and whether anybody else is there at all.

use std::time::Duration;

use super::super::SeenRecord;
use super::activity::Activity;
use super::link::Link;

/// The producer that combines at present, as far as the log shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leader {
    writer: u64,
    /// When its last record was seen.
    pub(super) seen: Duration,
    /// Time between its records.
    pub(super) gap: Duration,
}

#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) link: Link,
    pub(super) leader: Option<Leader>,
    /// Versions seen, own ones included.
    pub(super) versions: u64,
    /// Foreign records in the last catch-up.
    pub(super) behind: u64,
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

    /// Whether the leader has been heard of lately; `pace` is how often one writes at least.
    pub(super) fn is_fresh(&self, now: Duration, pace: Duration) -> bool {
        self.leader.is_some_and(|leader| {
            let patience = self.link.patience() + pace.max(leader.gap);
            now.saturating_sub(leader.seen) < patience
        })
    }

    /// Records to expect when the log is read now.
    pub(super) fn expected(&self, now: Duration) -> u64 {
        let expected = match self.leader {
            Some(leader) => {
                let gap = leader.gap.max(Duration::from_millis(1));
                let elapsed = now.saturating_sub(leader.seen);
                (elapsed.as_micros() / gap.as_micros()) as u64
            }
            None => self.behind + 1,
        };
        expected.clamp(1, 16)
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
                let sample = now.saturating_sub(leader.seen) / led;
                (leader.gap * 3 + sample) / 4
            });
            self.leader = Some(Leader {
                writer: last.writer,
                seen: now,
                gap,
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
