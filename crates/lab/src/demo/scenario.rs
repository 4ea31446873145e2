//! The schedule of kills: drawn from the seed, as fractions of the whole run.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The process to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Producer(usize),
    Consumer,
    Rank(usize),
}

/// One kill, due when the given fraction of the steps is committed (producers) or trained (others).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kill {
    pub(crate) victim: Victim,
    pub(crate) at: f64,
    /// An additional delay, so that kills hit any instant between two polls.
    pub(crate) delay_ms: u64,
}

/// Draws `each` kills of a producer, of the consumer and of a rank.
pub(crate) fn draw(seed: u64, each: u32, producers: usize, ranks: usize) -> Vec<Kill> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut kills = Vec::new();
    for _ in 0..each {
        // Producers run ahead and finish early: they are killed in their first third.
        let victims = [
            (Victim::Producer(rng.random_range(0..producers)), 0.02..0.35),
            (Victim::Consumer, 0.05..0.9),
            (Victim::Rank(rng.random_range(0..ranks)), 0.05..0.9),
        ];
        for (victim, part) in victims {
            let (at, delay_ms) = (rng.random_range(part), rng.random_range(0..25));
            kills.push(Kill {
                victim,
                at,
                delay_ms,
            });
        }
    }
    kills
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_kills_of_every_kind() {
        let kills = draw(7, 2, 2, 4);
        assert_eq!(kills, draw(7, 2, 2, 4));
        assert_ne!(kills, draw(8, 2, 2, 4));
        for kind in ["Producer", "Consumer", "Rank"] {
            let count = kills
                .iter()
                .filter(|k| format!("{:?}", k.victim).starts_with(kind))
                .count();
            assert_eq!(count, 2, "{kind}");
        }
    }
}
