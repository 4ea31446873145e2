//! Follows the log for the lane of the first missing step.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchweave_log::{Log, LogError, LogOptions};
use batchweave_store::Store;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::takeover::Takeover;

/// The time between two reads of the log is this part of the time after which a lane is taken over.
const READS: u32 = 8;
/// The bounds of that time.
const EVERY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];

/// An event of the log.
#[derive(Debug)]
pub(super) enum Seen {
    /// This lane is to be taken over.
    Abandoned(String),
    /// The stream has ended or is sealed.
    Over,
    /// The log can't be read.
    Failed(LogError),
}

/// Reads the log again and again until it is over, or nobody listens.
pub(super) async fn follow(
    store: Arc<dyn Store>,
    after: Duration,
    (takeover, began): (Arc<Mutex<Takeover>>, Instant),
    held: impl Fn() -> bool + Send,
    seen: mpsc::Sender<Seen>,
) {
    let every = (after / READS).clamp(EVERY[0], EVERY[1]);
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    let mut log = None;
    let mut failing = false;
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(every) => {}
            () = seen.closed() => return,
        }
        let read = match &mut log {
            Some(log) => Log::catch_up(log).await,
            None => Log::open(store.clone(), &options)
                .await
                .map(|opened| log = Some(opened)),
        };
        match read {
            Ok(()) => failing = false,
            // A lane is about to create it.
            Err(LogError::NoStream { .. }) => continue,
            // Producers report a store that does not answer, and stop when it lasts.
            Err(LogError::Store(why)) => {
                if !failing {
                    tracing::warn!(%why, "cannot see which lane is awaited; tries again");
                }
                failing = true;
                continue;
            }
            Err(why) => {
                let _ = seen.send(Seen::Failed(why)).await;
                return;
            }
        }
        let Some(m) = log.as_ref().map(Log::manifest) else {
            continue;
        };
        if m.end().is_some() {
            let _ = seen.send(Seen::Over).await;
            return;
        }
        let awaited = m.awaited_lane().map(|lane| (lane.as_str(), m.next_step()));
        let lane = {
            let mut takeover = takeover.lock().unwrap_or_else(PoisonError::into_inner);
            takeover.look(began.elapsed(), awaited, held())
        };
        if let Some(lane) = lane
            && seen.send(Seen::Abandoned(lane)).await.is_err()
        {
            return;
        }
    }
}
