//! Virtual time. tokio's paused clock moves in whole milliseconds, too coarse for a store that
//! answers in 3 ms, so one tokio millisecond stands for [`UNIT`].

use std::time::Duration;

use tokio::time::Instant;

/// Microseconds of virtual time per tokio millisecond.
const UNIT_MICROS: u64 = 10;
/// Virtual time per tokio millisecond: the grid of all timers.
pub const UNIT: Duration = Duration::from_micros(UNIT_MICROS);

/// The simulation's time, from which each actor's clock is derived.
#[derive(Debug, Clone, Copy)]
pub struct Timeline {
    start: Instant,
}

impl Timeline {
    /// Returns the time since the beginning.
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.start.elapsed().as_millis() as u64 * UNIT_MICROS)
    }

    /// Waits until `at`, rounded up to the grid.
    pub async fn sleep_until(&self, at: Duration) {
        let units = (at.as_nanos() as u64).div_ceil(UNIT_MICROS * 1000);
        tokio::time::sleep_until(self.start + Duration::from_millis(units)).await;
    }

    /// Waits until `at`, or for ever without one.
    pub(crate) async fn sleep_until_any(&self, at: Option<Duration>) {
        match at {
            Some(at) => self.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for the duration `time`.
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now() + time).await;
    }
}

/// Runs a simulation on its own runtime: one thread, and time that jumps to the next timer.
pub fn run<F: Future>(make: impl FnOnce(Timeline) -> F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(async {
        let start = Instant::now();
        make(Timeline { start }).await
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_passes_at_once_and_to_the_unit() {
        let day = Duration::from_hours(24);
        let woke = run(|time| async move {
            time.sleep(UNIT * 7 / 2).await;
            let short = time.now();
            time.sleep_until(day).await;
            (short, time.now())
        });
        assert_eq!(woke.unwrap(), (UNIT * 4, day));
    }
}
