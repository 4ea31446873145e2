//! Ranks that connect before the daemon can serve: they are notified of the reason, and served later.

use std::convert::Infallible;
use std::time::Duration;

use batchweave_daemon::health::Health;
use batchweave_wire::{DaemonMessage, WaitCause, Waiting};
use tokio::time::{MissedTickBehavior, interval};

use super::accept::Acceptor;
use super::connection::{NOTIFY_AGAIN, PendingConnection};
use crate::node::Outgoing;

/// How often to check whether the reason for waiting has changed.
const CHECK_PERIOD: Duration = Duration::from_millis(200);

/// The ranks that wait.
#[derive(Default)]
pub(crate) struct PendingConnections(Vec<PendingConnection>);

impl PendingConnections {
    /// Accepts ranks and notifies them of the status of `health`, until dropped.
    pub(crate) async fn receive(&mut self, acceptor: &Acceptor, health: &Health) -> Infallible {
        let mut tick = interval(CHECK_PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks: u32 = 0;
        loop {
            tokio::select! {
                biased;
                next = acceptor.next((self.0.len(), self.0.len())) => self.0.extend(next),
                _ = tick.tick() => {
                    let (_, reason) = health.get();
                    ticks += 1;
                    let ticks_again = NOTIFY_AGAIN.as_millis() / CHECK_PERIOD.as_millis();
                    let again = ticks.is_multiple_of(ticks_again as u32);
                    self.0.retain_mut(|pending| notify(pending, &reason, again));
                }
            }
        }
    }

    /// Returns the ranks that still wait.
    pub(crate) fn into_inner(self) -> Vec<PendingConnection> {
        self.0
    }
}

/// Notifies a rank of the reason, if it is new or `again`. Returns false if the rank is gone. A message that the
/// socket does not accept yet is sent at the next check.
fn notify(pending: &mut PendingConnection, reason: &str, again: bool) -> bool {
    let known = pending.last_reported.as_deref() == Some(reason);
    if pending.refusal.is_some() || (known && !again) {
        return true;
    }
    let waiting = Waiting {
        step: 0,
        cause: WaitCause::DaemonStarting,
        detail: reason.to_owned(),
    };
    let message = Outgoing::Message(DaemonMessage::Waiting(waiting));
    match pending.connection.try_send(&message) {
        Ok(true) => pending.last_reported = Some(reason.to_owned()),
        Ok(false) => {}
        Err(_) => return false,
    }
    true
}
