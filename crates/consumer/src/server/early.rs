//! Ranks that come before the daemon can serve: they are told why they wait, and served later.

use std::convert::Infallible;
use std::time::Duration;

use batchweave_daemon::health::Health;
use batchweave_wire::{DaemonMessage, Fault, WaitCause, Waiting};
use tokio::time::{MissedTickBehavior, interval};

use crate::node::Outgoing;
use crate::server::accept::Gate;
use crate::server::connection::{Inbox, Peer};
use crate::server::session::LATE_AGAIN;

/// The reason may have changed: it is looked at so often.
const LOOK: Duration = Duration::from_millis(200);

/// A rank that has connected; its hello is not read yet.
pub(crate) struct Guest {
    pub(crate) peer: Peer,
    pub(crate) inbox: Inbox,
    pub(crate) refusal: Option<Fault>,
    /// The reason that it was told last; none while its socket took nothing yet.
    pub(crate) told: Option<String>,
}

/// Those who wait.
#[derive(Default)]
pub(crate) struct Lobby {
    guests: Vec<Guest>,
}

impl Lobby {
    /// Takes ranks in and tells them what `health` says, until dropped.
    pub(crate) async fn receive(&mut self, gate: &Gate, health: &Health) -> Infallible {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks: u32 = 0;
        loop {
            tokio::select! {
                biased;
                guest = gate.guest((self.guests.len(), self.guests.len())) => self.guests.extend(guest),
                _ = tick.tick() => {
                    let (_, reason) = health.get();
                    ticks += 1;
                    let again = ticks.is_multiple_of((LATE_AGAIN.as_millis() / LOOK.as_millis()) as u32);
                    self.guests.retain_mut(|guest| tell(guest, &reason, again));
                }
            }
        }
    }

    /// Those who still wait.
    pub(crate) fn into_guests(self) -> Vec<Guest> {
        self.guests
    }
}

/// False when the rank is gone. A socket just accepted is not known to be writable: what it did not
/// take is told at the next look.
fn tell(guest: &mut Guest, reason: &str, again: bool) -> bool {
    let known = guest.told.as_deref() == Some(reason);
    if guest.refusal.is_some() || (known && !again) {
        return true;
    }
    let waiting = Waiting {
        step: 0,
        cause: WaitCause::DaemonStarting,
        detail: reason.to_owned(),
    };
    let message = Outgoing::Message(DaemonMessage::Waiting(waiting));
    match guest.peer.try_send(&message) {
        Ok(true) => guest.told = Some(reason.to_owned()),
        Ok(false) => {}
        Err(_) => return false,
    }
    true
}
