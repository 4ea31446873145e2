//! An actor's clock: it is too fast or too slow, and jumps forward. It never goes back, as the programs
//! use monotonic clocks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A sudden forward step of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Jump {
    /// The simulation's time of the jump.
    pub at: Duration,
    /// The size of the jump.
    pub by: Duration,
}

/// The relation of a clock to the simulation's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// The seconds that it counts per second.
    pub rate: f64,
    pub jumps: Vec<Jump>,
}

impl Default for Skew {
    fn default() -> Self {
        Self {
            rate: 1.0,
            jumps: Vec::new(),
        }
    }
}

impl Skew {
    /// Returns the clock's time at the simulation's time `at`.
    pub fn shows(&self, at: Duration) -> Duration {
        let jumped: Duration = self.jumps.iter().filter(|j| j.at <= at).map(|j| j.by).sum();
        at.mul_f64(self.rate) + jumped
    }

    /// Returns the first simulation time at which the clock shows `local` or more.
    pub fn reaches(&self, local: Duration) -> Duration {
        let mut jumped = Duration::ZERO;
        for jump in &self.jumps {
            let straight = local.saturating_sub(jumped).div_f64(self.rate);
            if straight < jump.at {
                return straight;
            }
            jumped += jump.by;
            if jump.at.mul_f64(self.rate) + jumped >= local {
                return jump.at;
            }
        }
        local.saturating_sub(jumped).div_f64(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn shows_and_reaches_agree() {
        let jumps = vec![
            Jump {
                at: 10 * S,
                by: 5 * S,
            },
            Jump { at: 20 * S, by: S },
        ];
        let skew = Skew { rate: 2.0, jumps };
        assert_eq!(skew.shows(9 * S), 18 * S);
        assert_eq!(skew.shows(10 * S), 25 * S);
        assert_eq!(skew.shows(20 * S), 46 * S);
        assert_eq!(skew.reaches(18 * S), 9 * S);
        assert_eq!(skew.reaches(22 * S), 10 * S, "the jump passes it");
        assert_eq!(skew.reaches(27 * S), 11 * S);
        assert_eq!(skew.reaches(48 * S), 21 * S);
    }
}
