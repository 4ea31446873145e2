//! The policies that DAC is compared with: commit at once and retry, with backoff (`Plain`) or without
//! (`Naive`).

use std::time::Duration;

use super::random::Random;
use super::{Action, Event, PUT, Policy, Queue};

/// Commits at once; after a lost race waits a random part of `base * 2^lost`, catches up and retries.
#[derive(Debug, Clone)]
pub struct Plain {
    linger: Duration,
    base: Duration,
    lost: u32,
    due: Duration,
    behind: bool,
    random: Random,
}

/// Lost races after which the backoff stops growing.
const LOST_MAX: u32 = 6;

impl Plain {
    /// Returns a policy that collects items for `linger` after the first is ready. `base` is about one put
    /// latency; `seed` feeds the jitter.
    pub fn new(linger: Duration, base: Duration, seed: u64) -> Self {
        Self {
            linger,
            base,
            lost: 0,
            due: Duration::ZERO,
            behind: false,
            random: Random::new(seed),
        }
    }
}

impl Policy for Plain {
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action {
        match event {
            Event::Won { .. } => self.lost = 0,
            Event::Lost(_) => {
                self.lost = (self.lost + 1).min(LOST_MAX);
                self.behind = true;
                self.due = now + self.random.part(self.base * 2_u32.pow(self.lost));
            }
            Event::CaughtUp(_) | Event::Behind(_) => self.behind = false,
            _ => {}
        }
        let due = self.due.max(queue.oldest + self.linger);
        match due.saturating_sub(now) {
            _ if queue.ready == 0 => Action::Idle,
            Duration::ZERO if self.behind => Action::CatchUp(1),
            Duration::ZERO => PUT,
            rest => Action::Wait(rest),
        }
    }
}

/// Commits at once; after a lost race folds the winner and tries the next version at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Naive;

impl Policy for Naive {
    fn step(&mut self, _: Duration, queue: Queue, _: Event) -> Action {
        if queue.ready == 0 { Action::Idle } else { PUT }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SeenRecord;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ready(at: Duration) -> Queue {
        Queue {
            ready: 1,
            announced: 0,
            oldest: at,
        }
    }

    fn won() -> Event {
        let others = Vec::new();
        Event::Won {
            others,
            full: false,
        }
    }

    fn lost() -> Event {
        Event::Lost(SeenRecord {
            writer: 7,
            leads: false,
            put_ms: None,
            producers: vec![7],
        })
    }

    #[test]
    fn commits_at_once_when_quiet() {
        let mut p = Plain::new(Duration::ZERO, 30 * MS, 1);
        assert_eq!(p.step(MS, Queue::default(), Event::Timer), Action::Idle);
        assert_eq!(p.step(MS, ready(MS), Event::Ready), PUT);
        assert_eq!(p.step(2 * MS, Queue::default(), won()), Action::Idle);
        assert_eq!(p.step(3 * MS, ready(3 * MS), Event::Ready), PUT);
    }

    #[test]
    fn lingers_for_more() {
        let mut p = Plain::new(10 * MS, 30 * MS, 1);
        assert_eq!(p.step(MS, ready(MS), Event::Ready), Action::Wait(10 * MS));
        assert_eq!(
            p.step(5 * MS, ready(MS), Event::Ready),
            Action::Wait(6 * MS)
        );
        assert_eq!(p.step(11 * MS, ready(MS), Event::Timer), PUT);
    }

    #[test]
    fn backs_off_within_bounds_and_recovers() {
        for seed in 0..200 {
            let mut p = Plain::new(Duration::ZERO, 30 * MS, seed);
            p.step(Duration::ZERO, ready(Duration::ZERO), Event::Ready);
            for round in 1..=10_u32 {
                let most = 30 * MS * 2_u32.pow(round.min(LOST_MAX));
                match p.step(Duration::ZERO, ready(Duration::ZERO), lost()) {
                    Action::Wait(d) => assert!(d < most, "seed {seed}: {d:?}"),
                    Action::CatchUp(_) => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            let later = Duration::from_secs(9);
            let queue = ready(Duration::ZERO);
            assert_eq!(p.step(later, queue, Event::Timer), Action::CatchUp(1));
            assert_eq!(p.step(later, queue, Event::CaughtUp(vec![])), PUT);
            assert_eq!(p.step(later, Queue::default(), won()), Action::Idle);
        }
    }

    #[test]
    fn jitter_differs_between_seeds() {
        let wait = |seed| {
            let mut p = Plain::new(Duration::ZERO, 30 * MS, seed);
            p.step(Duration::ZERO, ready(Duration::ZERO), Event::Ready);
            p.step(Duration::ZERO, ready(Duration::ZERO), lost())
        };
        assert_ne!(wait(1), wait(2));
    }
}
