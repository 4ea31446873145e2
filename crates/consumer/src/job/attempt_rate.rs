//! The limit on attempts that a job may open through this daemon: each adds a record to the log for ever. Pure;
//! the time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_core::ids::JobName;

/// Attempts of a job that may be opened within `WINDOW`: more than restarts need, less than a flood.
pub(crate) const MOST: usize = 30;
pub(crate) const WINDOW: Duration = Duration::from_mins(1);

/// The times at which the last attempts of each job were opened.
#[derive(Debug, Default)]
pub(crate) struct AttemptRate(Mutex<BTreeMap<JobName, VecDeque<Duration>>>);

impl AttemptRate {
    /// Counts an attempt that is opened now; fails with the time until the next is allowed.
    pub(crate) fn take(&self, job: &JobName, now: Duration) -> Result<(), Duration> {
        let mut jobs = self.jobs();
        jobs.retain(|_, times| {
            times.retain(|at| *at + WINDOW > now);
            !times.is_empty()
        });
        let times = jobs.entry(job.clone()).or_default();
        match times.front() {
            Some(oldest) if times.len() >= MOST => Err((*oldest + WINDOW).saturating_sub(now)),
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
    }

    /// Takes back the last count, since the attempt was not opened.
    pub(crate) fn give_back(&self, job: &JobName) {
        if let Some(times) = self.jobs().get_mut(job) {
            times.pop_back();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobName, VecDeque<Duration>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobName {
        name.parse().unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_job_opens_so_many_attempts_in_a_minute_and_then_waits() {
        let (rate, busy) = (AttemptRate::default(), job("busy"));
        for n in 0..MOST as u64 {
            assert_eq!(rate.take(&busy, at(n)), Ok(()));
        }
        assert_eq!(rate.take(&busy, at(35)), Err(at(25)));
        assert_eq!(rate.take(&job("other"), at(35)), Ok(()));
        assert_eq!(rate.take(&busy, at(60)), Ok(()));
        assert_eq!(rate.take(&busy, at(60)), Err(at(1)));
    }

    #[test]
    fn an_attempt_that_was_not_opened_does_not_count() {
        let (rate, busy) = (AttemptRate::default(), job("busy"));
        for n in 0..1_000 {
            assert_eq!(rate.take(&busy, at(n)), Ok(()));
            rate.give_back(&busy);
        }
    }

    #[test]
    fn jobs_that_are_quiet_are_forgotten() {
        let rate = AttemptRate::default();
        for n in 0..1_000 {
            rate.take(&job(&format!("job-{n}")), at(n)).unwrap();
        }
        assert_eq!(rate.jobs().len(), 60);
    }
}
