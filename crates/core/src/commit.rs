//! When to commit: a pure state machine that a driver asks. It sees time as an argument and acts
//! through the actions it returns; safety never depends on it (the fold judges every entry).
//!
//! `Plain` commits as soon as something is ready and backs off with full jitter after a lost race.

use std::time::Duration;

/// What the driver tells the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// TGBs are uploaded and uncommitted.
    Ready,
    /// Our record won.
    Won,
    /// Another record took the version; `foreign` records were folded since.
    Lost {
        /// How many.
        foreign: u64,
    },
    /// The time of the last `Wait` is over.
    Timer,
}

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Put a record with everything that is ready.
    Put {
        /// The hint for the record.
        leads: bool,
    },
    /// Send `Timer` after this time, or the next event before.
    Wait(Duration),
    /// Nothing to do until the next event.
    Idle,
}

/// A commit policy.
pub trait Policy: Send {
    /// The next action. `now` counts from any fixed instant and never goes back.
    fn step(&mut self, now: Duration, event: Event) -> Action;
}

/// Commit at once; after a lost race wait a random part of `base * 2^lost`.
#[derive(Debug, Clone)]
pub struct Plain {
    linger: Duration,
    base: Duration,
    lost: u32,
    pending: bool,
    due: Option<Duration>,
    random: u64,
}

/// Backoff stops growing here.
const LOST_MAX: u32 = 6;

impl Plain {
    /// `linger`: how long to collect more TGBs after the first is ready. `base`: about one put
    /// latency. `seed` feeds the jitter.
    pub fn new(linger: Duration, base: Duration, seed: u64) -> Self {
        Self {
            linger,
            base,
            lost: 0,
            pending: false,
            due: None,
            random: seed,
        }
    }

    // SplitMix64 (Steele, Lea, Flood 2014).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn wait_until(&mut self, now: Duration, due: Duration) -> Action {
        self.due = Some(due);
        match due.saturating_sub(now) {
            Duration::ZERO => self.put(),
            rest => Action::Wait(rest),
        }
    }

    fn put(&mut self) -> Action {
        self.due = None;
        Action::Put { leads: false }
    }
}

impl Policy for Plain {
    fn step(&mut self, now: Duration, event: Event) -> Action {
        match event {
            Event::Won => {
                self.lost = 0;
                self.pending = false;
                self.due = None;
                Action::Idle
            }
            Event::Lost { .. } => {
                self.lost = (self.lost + 1).min(LOST_MAX);
                let most = self.base * 2_u32.pow(self.lost);
                let part = self.draw() % 1024;
                self.wait_until(now, now + most * part as u32 / 1024)
            }
            Event::Ready if !self.pending => {
                self.pending = true;
                self.wait_until(now, now + self.linger)
            }
            Event::Ready | Event::Timer => match self.due {
                Some(due) => self.wait_until(now, due),
                None if self.pending => self.put(),
                None => Action::Idle,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn commits_at_once_when_quiet() {
        let mut p = Plain::new(Duration::ZERO, 30 * MS, 1);
        assert_eq!(p.step(MS, Event::Timer), Action::Idle);
        assert_eq!(p.step(MS, Event::Ready), Action::Put { leads: false });
        assert_eq!(p.step(2 * MS, Event::Won), Action::Idle);
        assert_eq!(p.step(3 * MS, Event::Ready), Action::Put { leads: false });
    }

    #[test]
    fn lingers_for_more() {
        let mut p = Plain::new(10 * MS, 30 * MS, 1);
        assert_eq!(p.step(MS, Event::Ready), Action::Wait(10 * MS));
        assert_eq!(p.step(5 * MS, Event::Ready), Action::Wait(6 * MS));
        assert_eq!(p.step(11 * MS, Event::Timer), Action::Put { leads: false });
    }

    #[test]
    fn backs_off_within_bounds_and_recovers() {
        for seed in 0..200 {
            let mut p = Plain::new(Duration::ZERO, 30 * MS, seed);
            p.step(Duration::ZERO, Event::Ready);
            for lost in 1..=10_u32 {
                let most = 30 * MS * 2_u32.pow(lost.min(LOST_MAX));
                match p.step(Duration::ZERO, Event::Lost { foreign: 1 }) {
                    Action::Wait(d) => assert!(d < most, "seed {seed}: {d:?}"),
                    Action::Put { .. } => {}
                    Action::Idle => panic!("seed {seed}: gave up"),
                }
            }
            p.step(Duration::ZERO, Event::Won);
            assert_eq!(
                p.step(Duration::ZERO, Event::Ready),
                Action::Put { leads: false }
            );
        }
    }

    #[test]
    fn jitter_differs_between_seeds() {
        let wait = |seed| {
            let mut p = Plain::new(Duration::ZERO, 30 * MS, seed);
            p.step(Duration::ZERO, Event::Ready);
            p.step(Duration::ZERO, Event::Lost { foreign: 1 })
        };
        assert_ne!(wait(1), wait(2));
    }
}
