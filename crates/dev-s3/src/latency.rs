//! Request latencies: log-normal distributions given by the published p50 and p99.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::{Rng, RngExt};

use crate::Op;

/// The latencies that the server imitates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LatencyProfile {
    #[default]
    None,
    /// S3 Standard in the same region.
    S3Standard,
    /// S3 Express One Zone in the same zone.
    S3Express,
}

/// Median and 99th percentile of one kind of request, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Quantiles {
    p50_ms: f64,
    p99_ms: f64,
}

/// The standard normal distribution's 99th percentile.
const Z99: f64 = 2.326;

impl LatencyProfile {
    fn quantiles(self, op: Op) -> Option<Quantiles> {
        let (get, put, list) = match self {
            Self::None => return None,
            Self::S3Standard => ((15.0, 60.0), (30.0, 120.0), (40.0, 150.0)),
            Self::S3Express => ((4.0, 10.0), (6.0, 15.0), (10.0, 30.0)),
        };
        let (p50_ms, p99_ms) = match op {
            Op::Get | Op::Head => get,
            Op::Put | Op::Part | Op::Multipart | Op::Delete => put,
            Op::List | Op::Bucket => list,
        };
        Some(Quantiles { p50_ms, p99_ms })
    }

    /// Draws the latency of one request.
    pub fn sample(self, op: Op, rng: &mut impl Rng) -> Duration {
        let Some(q) = self.quantiles(op) else {
            return Duration::ZERO;
        };
        let sigma = (q.p99_ms / q.p50_ms).ln() / Z99;
        Duration::from_secs_f64(q.p50_ms * (sigma * standard_normal(rng)).exp() / 1000.0)
    }
}

/// Returns a standard normal number by Box and Muller's method, which makes two.
fn standard_normal(rng: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (TAU * rng.random::<f64>()).cos()
}

impl fmt::Display for LatencyProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::S3Standard => "s3-standard",
            Self::S3Express => "s3-express",
        })
    }
}

impl FromStr for LatencyProfile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::None, Self::S3Standard, Self::S3Express]
            .into_iter()
            .find(|profile| profile.to_string() == name)
            .ok_or_else(|| {
                format!("unknown latency profile `{name}`: it is none, s3-standard or s3-express")
            })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn percentile(sorted: &[Duration], p: usize) -> f64 {
        sorted[sorted.len() * p / 100].as_secs_f64() * 1000.0
    }

    #[test]
    fn samples_meet_the_published_quantiles() {
        for (profile, op, p50, p99) in [
            (LatencyProfile::S3Standard, Op::Get, 15.0, 60.0),
            (LatencyProfile::S3Standard, Op::Put, 30.0, 120.0),
            (LatencyProfile::S3Standard, Op::List, 40.0, 150.0),
            (LatencyProfile::S3Express, Op::Put, 6.0, 15.0),
        ] {
            let mut rng = StdRng::seed_from_u64(7);
            let mut drawn: Vec<_> = (0..20_000).map(|_| profile.sample(op, &mut rng)).collect();
            drawn.sort();
            let (got50, got99) = (percentile(&drawn, 50), percentile(&drawn, 99));
            assert!(
                (got50 / p50 - 1.0).abs() < 0.05,
                "{profile} {op}: p50 {got50} ms, published {p50}"
            );
            assert!(
                (got99 / p99 - 1.0).abs() < 0.10,
                "{profile} {op}: p99 {got99} ms, published {p99}"
            );
        }
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            (0..10)
                .map(|_| LatencyProfile::S3Standard.sample(Op::Get, &mut rng))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn names_round_trip() {
        for name in ["none", "s3-standard", "s3-express"] {
            assert_eq!(name.parse::<LatencyProfile>().unwrap().to_string(), name);
        }
        assert!(
            "s3".parse::<LatencyProfile>()
                .unwrap_err()
                .contains("s3-express")
        );
    }
}
