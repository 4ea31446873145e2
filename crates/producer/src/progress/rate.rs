//! Speeds over the last minute, from samples.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Interval between samples, and the time that they cover.
const EVERY: Duration = Duration::from_secs(1);
const COVERED: Duration = Duration::from_mins(1);
/// Speeds over less than this are noise.
const LEAST: Duration = Duration::from_secs(2);

/// Totals at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    at: Instant,
    tokens: u64,
    /// Bytes of the input.
    bytes: u64,
}

/// Speeds in units per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Speeds {
    pub(super) tokens: f64,
    /// Bytes of the input.
    pub(super) bytes: f64,
}

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(super) struct Window(VecDeque<Sample>);

impl Window {
    /// Adds totals, and returns the speeds since the oldest sample; `None` in the first two seconds.
    pub(super) fn add(&mut self, at: Instant, tokens: u64, bytes: u64) -> Option<Speeds> {
        let newest = self.0.back().map(|sample| sample.at);
        if newest.is_none_or(|newest| at.duration_since(newest) >= EVERY) {
            self.0.push_back(Sample { at, tokens, bytes });
        }
        // One sample older than the covered time stays, so that the speeds cover all of it.
        while self
            .0
            .get(1)
            .is_some_and(|s| at.duration_since(s.at) >= COVERED)
        {
            self.0.pop_front();
        }
        let oldest = self.0.front()?;
        let time = at.duration_since(oldest.at);
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / time.as_secs_f64();
        (time >= LEAST).then(|| Speeds {
            tokens: per_second(tokens, oldest.tokens),
            bytes: per_second(bytes, oldest.bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_cover_the_last_minute() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut window = Window::default();
        assert_eq!(window.add(at(0), 0, 0), None);
        assert_eq!(window.add(at(1999), 100, 100), None, "too short");
        let speeds = window.add(at(2000), 200, 40).unwrap();
        assert_eq!((speeds.tokens, speeds.bytes), (100.0, 20.0));
        // Ten times as fast from then on: after a minute the slow start is forgotten.
        let mut last = speeds;
        for second in 3..=70 {
            last = window.add(at(second * 1000), second * 1000, 0).unwrap();
        }
        assert!((last.tokens - 1000.0).abs() < 1e-6, "{last:?}");
        assert!(window.0.len() <= 62, "bounded");
        let stopped = window.add(at(200_000), 70_000, 0).unwrap();
        assert!(stopped.tokens < 1e-6, "{stopped:?}");
    }
}
