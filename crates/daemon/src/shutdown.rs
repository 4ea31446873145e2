//! Stopping: SIGTERM or SIGINT cancels a token, and draining has a deadline.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::notify::Notifier;

/// Returns a token that the first SIGTERM or SIGINT cancels. A second signal ends the process
/// immediately with code 130, without waiting for the drain.
pub fn on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            let name = tokio::select! {
                biased;
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if first {
                tracing::info!(
                    signal = name,
                    "stopping; send the signal again to stop at once"
                );
                if let Ok(Some(manager)) = Notifier::from_env() {
                    manager.notify("STOPPING=1");
                }
                stop.cancel();
            } else {
                std::process::exit(130);
            }
        }
    });
    Ok(token)
}

/// Runs `work` while the daemon starts, when stopping loses nothing. Returns `None` when the first signal
/// arrives earlier, and logs `doing`, the cause of the wait.
pub async fn unless_stopped<T>(
    stop: &CancellationToken,
    doing: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = stop.cancelled() => {
            tracing::info!("stopped while starting; waiting for: {}", doing());
            None
        }
    }
}

/// The outcome of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// All work finished in time.
    Clean,
    /// The deadline passed; unfinished work is dropped.
    Late,
}

/// Waits for `work` at most `deadline` and logs when it did not finish.
pub async fn drain<F: Future>(what: &str, deadline: Duration, work: F) -> Drained {
    if tokio::time::timeout(deadline, work).await.is_ok() {
        return Drained::Clean;
    }
    tracing::warn!(
        what,
        deadline_s = deadline.as_secs_f64(),
        "not drained before the deadline"
    );
    Drained::Late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_ends_a_start_that_hangs() {
        let stop = CancellationToken::new();
        let doing = || "a store".to_owned();
        assert_eq!(unless_stopped(&stop, doing, async { 7 }).await, Some(7));
        stop.cancel();
        let never = std::future::pending::<()>();
        assert_eq!(unless_stopped(&stop, doing, never).await, None);
    }

    #[tokio::test]
    async fn a_drain_reports_whether_it_met_the_deadline() {
        let never = std::future::pending::<()>();
        assert_eq!(
            drain("x", Duration::from_millis(1), never).await,
            Drained::Late
        );
        assert_eq!(
            drain("x", Duration::from_mins(1), async {}).await,
            Drained::Clean
        );
    }
}
