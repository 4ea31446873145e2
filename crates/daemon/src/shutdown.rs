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
