//! The request limits of a store per second and top-level prefix: one token bucket each, with a burst
//! of one second.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_store::Op;

/// Requests per second and top-level prefix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    pub(crate) writes: f64,
    pub(crate) reads: f64,
}

/// S3 Standard, as published for a partitioned prefix.
pub(crate) const STANDARD: Limits = Limits {
    writes: 3500.0,
    reads: 5500.0,
};
/// S3 Express One Zone, as published for a directory bucket.
pub(crate) const EXPRESS: Limits = Limits {
    writes: 100_000.0,
    reads: 200_000.0,
};

/// Limits that no load reaches.
pub(crate) const NONE: Limits = Limits {
    writes: f64::INFINITY,
    reads: f64::INFINITY,
};

/// Returns the class by which a request is counted: the first name in its key.
pub(crate) fn class(key: &str) -> &'static str {
    let first = key.split(['/', '.']).next().unwrap_or_default();
    keys::CLASSES
        .into_iter()
        .find(|c| *c == first)
        .unwrap_or("other")
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

/// All token buckets of a store.
#[derive(Debug)]
pub(crate) struct Throttle {
    limits: Limits,
    buckets: BTreeMap<(&'static str, bool), Bucket>,
}

impl Throttle {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            buckets: BTreeMap::new(),
        }
    }

    /// Takes a token for a request. Returns false if the answer must be 503.
    pub(crate) fn admits(&mut self, op: Op, key: &str, now: Duration) -> bool {
        let reads = matches!(op, Op::Get | Op::GetRange | Op::Head);
        let rate = if reads {
            self.limits.reads
        } else {
            self.limits.writes
        };
        let full = Bucket {
            tokens: rate,
            at: now,
        };
        let bucket = self.buckets.entry((class(key), reads)).or_insert(full);
        let since = now.saturating_sub(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * rate).min(rate);
        bucket.at = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_takes_its_rate_and_no_more() {
        let mut throttle = Throttle::new(STANDARD);
        let mut admitted = 0;
        for ms in 0..10_000 {
            for _ in 0..5 {
                let now = Duration::from_millis(ms);
                admitted += u32::from(throttle.admits(Op::Create, "log/1", now));
            }
        }
        let expected = STANDARD.writes * 11.0;
        assert!(
            (f64::from(admitted) / expected - 1.0).abs() < 0.01,
            "{admitted}"
        );
        assert!(throttle.admits(Op::Create, "intents/a", Duration::from_secs(10)));
        assert!(throttle.admits(Op::Get, "log/1", Duration::from_secs(10)));
    }
}
