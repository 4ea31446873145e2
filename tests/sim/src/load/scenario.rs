//! The cases of the load table by name: the rates of the producers, and the disturbances.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A case of the load table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// All producers have the same rate.
    Steady,
    /// 8, 64, 512 and 8 producers, a quarter of the time each.
    Jumps,
    /// The leader dies every 20 s and is restarted after 1 s.
    LeaderKilled,
    /// The leader freezes for 5 s, every 20 s.
    LeaderFrozen,
    /// All requests take four times as long.
    SlowStore,
    /// One producer in twenty is ten times slower than the others.
    SlowProducers,
    /// All work happens in one second of ten, at ten times the rate.
    Bursts,
    /// Rates are proportional to 1/1, 1/2, 1/3, ... with the same mean.
    Zipf,
    /// All producers open at the same time; measured is the time until all have.
    ColdStart,
    /// One entry per second in total.
    Rare,
}

/// Returns all scenarios in order.
pub const ALL: [Scenario; 10] = [
    Scenario::Steady,
    Scenario::Jumps,
    Scenario::LeaderKilled,
    Scenario::LeaderFrozen,
    Scenario::SlowStore,
    Scenario::SlowProducers,
    Scenario::Bursts,
    Scenario::Zipf,
    Scenario::ColdStart,
    Scenario::Rare,
];

/// The length of one burst with the pause after it.
const BURST: Duration = Duration::from_secs(10);
/// The interval between injected leader faults.
pub(super) const DISTURB_EVERY: Duration = Duration::from_secs(20);

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Jumps => "jumps",
            Self::LeaderKilled => "leader-killed",
            Self::LeaderFrozen => "leader-frozen",
            Self::SlowStore => "slow-store",
            Self::SlowProducers => "slow-producers",
            Self::Bursts => "bursts",
            Self::Zipf => "zipf",
            Self::ColdStart => "cold-start",
            Self::Rare => "rare",
        }
    }

    /// Returns the number of producers when `asked` were asked for.
    pub(super) fn producers(self, asked: u32) -> u32 {
        match self {
            Self::Jumps => 512,
            _ => asked,
        }
    }

    /// Returns the entries per second of producer `n` of `all`, for a mean of `rate`.
    pub(super) fn rate(self, rate: f64, n: u32, all: u32) -> f64 {
        match self {
            Self::Bursts => rate * 10.0,
            Self::Rare => 1.0 / f64::from(all),
            Self::Zipf => {
                let sum: f64 = (1..=all).map(|k| 1.0 / f64::from(k)).sum();
                rate * f64::from(all) / f64::from(n + 1) / sum
            }
            _ => rate,
        }
    }

    /// Returns the next time at or after `at` at which producer `n` may make an entry; times count
    /// from the beginning of a run of length `whole`.
    pub(super) fn active_from(self, n: u32, at: Duration, whole: Duration) -> Duration {
        match self {
            Self::Bursts => {
                let into = Duration::from_nanos((at.as_nanos() % BURST.as_nanos()) as u64);
                if into < BURST / 10 {
                    at
                } else {
                    at + BURST.saturating_sub(into)
                }
            }
            Self::Jumps => {
                let quarter = whole / 4;
                let active = [8, 64, 512, 8];
                let now = (at.as_nanos() / quarter.as_nanos().max(1)).min(3) as usize;
                let next = (now..4).find(|&phase| n < active[phase]);
                match next {
                    Some(phase) if phase == now => at,
                    Some(phase) => quarter * phase as u32,
                    None => Duration::MAX,
                }
            }
            _ => at,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| {
            let all: Vec<_> = ALL.iter().map(|s| s.name()).collect();
            format!("unknown scenario {name:?}: {}", all.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn names_round_trip() {
        for scenario in ALL {
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
        }
        assert!("x".parse::<Scenario>().unwrap_err().contains("cold-start"));
    }

    #[test]
    fn rates_and_pauses() {
        let sum: f64 = (0..64).map(|n| Scenario::Zipf.rate(2.0, n, 64)).sum();
        assert!((sum - 128.0).abs() < 1e-6);
        assert_eq!(Scenario::Bursts.active_from(0, 10 * S, 60 * S), 10 * S);
        assert_eq!(Scenario::Bursts.active_from(0, 11 * S, 60 * S), 20 * S);
        let jumps = |n, at: u32| Scenario::Jumps.active_from(n, at * S, 40 * S);
        assert_eq!(jumps(0, 35), 35 * S);
        assert_eq!(jumps(40, 5), 10 * S);
        assert_eq!(jumps(40, 12), 12 * S);
        assert_eq!(jumps(40, 31), Duration::MAX);
    }
}
