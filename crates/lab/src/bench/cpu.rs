//! CPU times from `/proc`, work on all cores, rounds in turns and their medians.

use std::fs;
use std::time::Duration;

use batchweave_console::CliError;

use crate::error::bench_error;

/// Linux counts CPU time in `/proc/PID/stat` in hundredths of a second on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs `work` in a thread per core, and returns its first failure.
pub(super) fn on_all_cores(
    work: impl Fn() -> Result<(), CliError> + Copy + Send + Sync,
) -> Result<(), CliError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores()).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| bench_error("a thread died"))?)
    })
}

/// Returns the CPU time of the calling thread.
pub(super) fn thread_time() -> Result<Duration, CliError> {
    const SOURCE: &str = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(SOURCE).map_err(|e| bench_error(format!("{SOURCE}: {e}")))?;
    nanoseconds(&text)
        .map(Duration::from_nanos)
        .ok_or_else(|| bench_error(format!("{SOURCE} holds no CPU time")))
}

/// Returns the CPU seconds of all running threads of a process; those of ended threads are missing.
pub(super) fn threads_seconds(pid: u32) -> Result<f64, CliError> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += nanoseconds(&text).unwrap_or_default();
    }
    Ok(sum as f64 / 1e9)
}

fn nanoseconds(schedstat: &str) -> Option<u64> {
    schedstat.split(' ').next()?.parse().ok()
}

/// Returns user and system seconds of a process (a pid or `self`), ended threads included, in hundredths.
pub(super) fn process_seconds(process: &str) -> Result<f64, CliError> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program's name, which may hold anything, ends with the last bracket.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Result<Vec<f64>, _> = fields
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect();
    match ticks.map_err(bench_error)?.as_slice() {
        [user, system] => Ok((user + system) / TICKS_PER_SECOND),
        _ => Err(bench_error(format!(
            "/proc/{process}/stat holds no CPU time"
        ))),
    }
}

/// Measures both sides of round `n`. The order alternates, so that other load on the machine affects both.
pub(super) async fn in_turns<A, B>(
    n: u64,
    one: impl AsyncFn() -> Result<A, CliError>,
    other: impl AsyncFn() -> Result<B, CliError>,
) -> Result<(A, B), CliError> {
    if n.is_multiple_of(2) {
        let first = one().await?;
        return Ok((first, other().await?));
    }
    let first = other().await?;
    Ok((one().await?, first))
}

/// Returns the median of `value` over the rounds; 0 without rounds.
pub(super) fn median<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
