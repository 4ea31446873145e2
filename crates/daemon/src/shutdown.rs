//! Stopping: SIGTERM or SIGINT cancels a token, and draining has a deadline.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::notify::Notifier;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second signal ends the process at
/// once with 130, for a person who does not want to wait for the drain.
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
                    manager.tell("STOPPING=1");
                }
                stop.cancel();
            } else {
                std::process::exit(130);
            }
        }
    });
    Ok(token)
}

/// Runs `work` until it is done, or the first signal comes. The daemon is still starting, so nothing that a
/// restart could not find is lost. `None`, with a line in the log on what it waited for: the words of `doing`.
pub async fn unless_stopped<T>(
    stop: &CancellationToken,
    doing: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = stop.cancelled() => {
            tracing::info!("stopped while starting; it waited for this: {}", doing());
            None
        }
    }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// Everything was finished in time.
    Clean,
    /// The deadline came first; what was left is dropped.
    Late,
}

/// Waits for `work` at most `deadline` and says in the log when that was not enough.
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
    async fn a_start_that_hangs_ends_with_the_signal() {
        let stop = CancellationToken::new();
        let doing = || "a store".to_owned();
        assert_eq!(unless_stopped(&stop, doing, async { 7 }).await, Some(7));
        stop.cancel();
        let never = std::future::pending::<()>();
        assert_eq!(unless_stopped(&stop, doing, never).await, None);
    }

    #[tokio::test]
    async fn drain_tells_late_from_clean() {
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
