//! Request latencies: log-normal distributions given by p50 and p99. The figures are those of
//! `batchweave dev-s3`, so that a simulated run can be compared with a real one against it.

use std::time::Duration;

use batchweave_store::Op;

use crate::draw::Draw;
use crate::store::throttle::{self, Limits};

/// The standard normal distribution's 99th percentile.
const Z99: f64 = 2.326;

/// The median and 99th percentile in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Quantiles {
    p50_ms: f64,
    p99_ms: f64,
}

/// The latencies of one kind of store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    pub name: &'static str,
    put: Quantiles,
    get: Quantiles,
    list: Quantiles,
    scale: f64,
    limits: Limits,
}

const fn q(p50_ms: f64, p99_ms: f64) -> Quantiles {
    Quantiles { p50_ms, p99_ms }
}

impl Profile {
    /// S3 Standard in the same region.
    pub const STANDARD: Self = Self {
        name: "s3-standard",
        put: q(30.0, 120.0),
        get: q(15.0, 60.0),
        list: q(40.0, 150.0),
        scale: 1.0,
        limits: throttle::STANDARD,
    };
    /// S3 Express One Zone in the same zone.
    pub const EXPRESS: Self = Self {
        name: "s3-express",
        put: q(6.0, 15.0),
        get: q(4.0, 10.0),
        list: q(10.0, 30.0),
        scale: 1.0,
        limits: throttle::EXPRESS,
    };

    /// Returns the profile with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::STANDARD, Self::EXPRESS]
            .into_iter()
            .find(|p| p.name == name)
    }

    /// Returns the same store, slower by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let scale = self.scale * factor;
        Self { scale, ..self }
    }

    /// Returns the request limits of the store.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the median latency of a put.
    pub fn put_p50(&self) -> Duration {
        Duration::from_secs_f64(self.put.p50_ms * self.scale / 1000.0)
    }

    /// Draws the latency of one request.
    pub fn draw(&self, op: Op, draw: &mut Draw) -> Duration {
        let q = match op {
            Op::Get | Op::GetRange | Op::Head | Op::Open => self.get,
            Op::Create | Op::Upload | Op::Delete => self.put,
            Op::List => self.list,
        };
        let sigma = (q.p99_ms / q.p50_ms).ln() / Z99;
        let ms = q.p50_ms * (sigma * draw.normal()).exp() * self.scale;
        Duration::from_secs_f64(ms / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_hit() {
        for (profile, op, p50, p99) in [
            (Profile::STANDARD, Op::Create, 30.0, 120.0),
            (Profile::EXPRESS.scaled(4.0), Op::Get, 16.0, 40.0),
        ] {
            let mut draw = Draw::new(1, "test", 0);
            let mut ms: Vec<f64> = (0..20_000)
                .map(|_| profile.draw(op, &mut draw).as_secs_f64() * 1000.0)
                .collect();
            ms.sort_by(f64::total_cmp);
            assert!((ms[10_000] / p50 - 1.0).abs() < 0.05, "p50 {}", ms[10_000]);
            assert!((ms[19_800] / p99 - 1.0).abs() < 0.10, "p99 {}", ms[19_800]);
        }
    }
}
