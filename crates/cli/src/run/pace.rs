//! How fast a run goes on, over the last minute: the share that is produced, and the steps that ranks have received.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The time that rates cover, and the least time for one.
const COVERED: Duration = Duration::from_mins(1);
const LEAST: Duration = Duration::from_secs(5);
/// The least share that is produced for an estimate of all steps.
const SHARE_MIN: f64 = 0.005;

/// Samples of the last minute.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace(VecDeque<(Instant, f64, f64)>);

/// The end of a run, as far as it can be seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Outlook {
    /// Steps of the whole stream; an estimate while the producer works.
    pub(super) steps: Option<f64>,
    /// Seconds until all is produced, and until the slowest rank has received all.
    pub(super) produced_in: Option<f64>,
    pub(super) trained_in: Option<f64>,
}

impl Pace {
    /// Adds the share that is produced, of `head` steps, and the next step of the slowest rank.
    pub(super) fn add(&mut self, at: Instant, share: f64, head: f64, step: Option<f64>) -> Outlook {
        let received = step.unwrap_or_default();
        // A restarted rank goes back.
        if self
            .0
            .back()
            .is_some_and(|(_, _, before)| received < *before)
        {
            self.0.clear();
        }
        self.0.push_back((at, share, received));
        while self
            .0
            .get(1)
            .is_some_and(|(then, ..)| at - *then >= COVERED)
        {
            self.0.pop_front();
        }
        let steps = (share >= SHARE_MIN && head > 0.0).then(|| head / share.min(1.0));
        let Some((then, earlier, before)) = self.0.front().copied() else {
            return Outlook::default();
        };
        let time = (at - then).as_secs_f64();
        let left = |rest: f64, grown: f64| {
            let moves = time >= LEAST.as_secs_f64() && grown > 0.0;
            moves.then(|| rest.max(0.0) * time / grown)
        };
        let produced_in = (share > 0.0).then(|| left(1.0 - share, share - earlier));
        let trained_in = steps
            .zip(step)
            .map(|(steps, step)| left(steps - step, step - before));
        Outlook {
            steps,
            produced_in: produced_in.flatten(),
            trained_in: trained_in.flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_seen_from_the_last_minute() {
        let (began, mut pace) = (Instant::now(), Pace::default());
        let mut last = Outlook::default();
        for second in 0..=20_u32 {
            let at = began + Duration::from_secs(second.into());
            let share = f64::from(second) / 100.0;
            last = pace.add(
                at,
                share,
                f64::from(second) * 10.0,
                Some(f64::from(second) * 5.0),
            );
            assert_eq!(last.trained_in.is_some(), second >= 5, "{second}");
        }
        assert_eq!(last.steps.map(f64::round), Some(1000.0));
        assert_eq!(last.produced_in.map(f64::round), Some(80.0));
        assert_eq!(last.trained_in.map(f64::round), Some(180.0));
        // Held back for long: nothing moves.
        for second in 21..=90_u32 {
            let at = began + Duration::from_secs(second.into());
            last = pace.add(at, 0.2, 200.0, Some(100.0));
        }
        assert_eq!((last.produced_in, last.trained_in), (None, None));
        let again = pace.add(began + Duration::from_secs(91), 0.2, 200.0, Some(10.0));
        assert_eq!(again.trained_in, None, "it went back");
        assert!(pace.0.len() <= 62, "bounded");
        assert_eq!(
            Pace::default().add(began, 0.0, 5.0, None),
            Outlook::default(),
            "unknown"
        );
    }
}
