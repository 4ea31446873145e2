//! Pauses between tries of a call that fails for a while.

use std::time::Duration;

/// A pause that doubles after each failed try, up to a cap. Pure state: the caller draws its own
/// randomness and sleeps by its own clock, so that a simulation stays deterministic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
    cap: Duration,
}

impl Backoff {
    /// Pauses of 50 ms to 5 s, which suit most calls to a store.
    pub const STORE: Self = Self::new(Duration::from_millis(50), Duration::from_secs(5));

    /// Returns pauses of `initial`, twice that, and so on, up to `cap`.
    pub const fn new(initial: Duration, cap: Duration) -> Self {
        Self { next: initial, cap }
    }

    /// Returns the pause before the next try, without jitter.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(self.cap);
        pause
    }

    /// Returns a random share of the next pause, so that callers that failed together do not retry
    /// together. `unit` is a random number in `0.0..1.0`.
    pub fn full_jitter(&mut self, unit: f64) -> Duration {
        self.pause().mul_f64(unit)
    }

    /// Returns the next pause without advancing to the one after it.
    pub fn peek(&self) -> Duration {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(300));
        let pauses: Vec<u128> = (0..5).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 300, 300]);
        assert_eq!(backoff.peek().as_millis(), 300);
        assert_eq!(backoff.full_jitter(0.5).as_millis(), 150);
    }
}
