//! Commits in an interval that each producer adapts by itself: our reading of how the paper describes its policy, not its
//! code. It knows of others only by the races that it loses.

use std::time::Duration;

use batchweave_core::commit_policy::{Action, Event, Policy, Queue};

use crate::draw::Draw;

/// The interval before the first put, and the longest one.
const FIRST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(30);
const PUT: Action = Action::Put {
    leads: false,
    combine: false,
    put_ms: None,
};

/// Shortens the interval by half a put after a won race, down to one put, and doubles it after a lost one.
#[derive(Debug)]
pub(crate) struct Interval {
    gap: Duration,
    /// When the next put is due.
    due: Duration,
    /// When the last put began, and what it took.
    put_at: Duration,
    put: Duration,
    behind: bool,
    draw: Draw,
}

impl Interval {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            gap: FIRST,
            due: Duration::ZERO,
            put_at: Duration::ZERO,
            put: FIRST,
            behind: false,
            draw: Draw::new(seed, "interval", 0),
        }
    }

    /// Plans the next put, between half of the interval and one and a half times it from now.
    fn plan(&mut self, now: Duration) {
        self.put = now.saturating_sub(self.put_at);
        self.due = now + self.gap.mul_f64(0.5 + self.draw.unit());
    }
}

impl Policy for Interval {
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action {
        match event {
            Event::Won { .. } => {
                self.gap = self.gap.saturating_sub(self.put / 2).max(self.put);
                self.plan(now);
            }
            Event::Lost(_) => {
                self.gap = (self.gap * 2).min(MOST);
                self.behind = true;
                self.plan(now);
            }
            Event::CaughtUp(_) | Event::Behind(_) => self.behind = false,
            _ => {}
        }
        match self.due.saturating_sub(now) {
            _ if queue.ready == 0 => Action::Idle,
            Duration::ZERO if self.behind => Action::CatchUp(1),
            Duration::ZERO => {
                self.put_at = now;
                PUT
            }
            rest => Action::Wait(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::commit_policy::SeenRecord;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_interval_grows_with_lost_races_and_shrinks_with_won_ones() {
        let mut policy = Interval::new(1);
        let queue = Queue {
            ready: 1,
            ..Queue::default()
        };
        let lost = || {
            Event::Lost(SeenRecord {
                writer: 7,
                leads: false,
                put_ms: None,
                producers: vec![7],
            })
        };
        let won = || Event::Won {
            others: Vec::new(),
            full: false,
        };
        assert_eq!(policy.step(MS, queue, Event::Ready), PUT);
        let wait = policy.step(41 * MS, queue, lost());
        assert_eq!(policy.gap, 100 * MS);
        let Action::Wait(wait) = wait else {
            panic!("{wait:?}")
        };
        assert!((50 * MS..=150 * MS).contains(&wait), "{wait:?}");
        let later = 41 * MS + wait;
        assert_eq!(policy.step(later, queue, Event::Timer), Action::CatchUp(1));
        assert_eq!(policy.step(later, queue, Event::CaughtUp(vec![])), PUT);
        assert_eq!(
            policy.step(later + 40 * MS, Queue::default(), won()),
            Action::Idle
        );
        assert_eq!(policy.gap, 80 * MS, "half a put less");
    }
}
