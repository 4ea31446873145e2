//! The daemon's socket and the accept loop: who may connect, and how many.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::{CLOSING_MAX, Connection, Listener, Peer as Who, closing, own_uid};
use batchweave_daemon::connection_slots::ConnectionSlots;
use batchweave_wire::{ErrorName, Fault};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::SocketTable;
use crate::error::RunError;
use crate::node::Hub;
use crate::server::connection::{Inbox, Peer, watch};
use crate::server::early::Guest;
use crate::server::handshake::turn_away;
use crate::server::session;

/// Connections above the limit that are told so; what comes beyond is closed at once.
const REFUSED_MAX: usize = 128;

/// Connections that have said nothing yet.
const SILENT_MAX: usize = 64;
/// Peers that may not connect and are told so at a time; the rest of them is closed without a word.
const STRANGERS_MAX: usize = 16;

/// A bound socket.
pub(crate) struct Gate {
    listener: AsyncFd<Listener>,
    allow_uids: Vec<u32>,
    max_sessions: usize,
    strangers: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn open(table: &SocketTable) -> Result<Self, RunError> {
        let mode = table.mode_bits().unwrap_or(0o600);
        let listener = Listener::bind(&table.path, mode)?;
        let listener = watch(listener, Interest::READABLE).map_err(RunError::Runtime)?;
        Ok(Self {
            listener,
            allow_uids: table.allow_uids.clone(),
            max_sessions: table.max_sessions,
            strangers: Arc::new(Semaphore::new(STRANGERS_MAX)),
        })
    }

    async fn next(&self) -> io::Result<(Connection, Who)> {
        self.listener
            .async_io(Interest::READABLE, Listener::accept)
            .await
    }

    /// The next rank, with why it is refused if it is; none when it could not be accepted, when it may not
    /// connect, or when too many are refused already. `open`: sessions, and all connections.
    pub(crate) async fn guest(&self, (sessions, all): (usize, usize)) -> Option<Guest> {
        while closing() >= CLOSING_MAX {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let accepted = self.next().await;
        match accepted.and_then(|(connection, who)| Ok((Peer::new(connection, who.uid)?, who))) {
            Ok(((peer, inbox), who)) if !who.allowed(own_uid(), &self.allow_uids) => {
                self.turn_away(peer, inbox, who);
                None
            }
            Ok(((peer, inbox), _)) => (all < self.max_sessions + REFUSED_MAX).then(|| Guest {
                peer,
                inbox,
                refusal: self.refusal(sessions),
                told: None,
            }),
            Err(why) => {
                tracing::warn!(%why, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }

    /// Tells a peer that may not connect so. Such peers have places of their own and take none from ranks.
    fn turn_away(&self, peer: Peer, inbox: Inbox, who: Who) {
        let Ok(place) = Arc::clone(&self.strangers).try_acquire_owned() else {
            return;
        };
        let message = format!("user id {} may not connect", who.uid);
        let fault = Fault::new(ErrorName::NotAllowed, message);
        tokio::spawn(async move {
            turn_away(peer, inbox, fault).await;
            drop(place);
        });
    }

    fn refusal(&self, sessions: usize) -> Option<Fault> {
        if sessions >= self.max_sessions {
            let message = format!("{sessions} sessions are open");
            let remedy = "close readers that are not needed, or raise socket.max_sessions";
            return Some(Fault::new(ErrorName::TooManySessions, message).remedy(remedy));
        }
        None
    }
}

/// Accepts ranks until `stop`; the socket's file is gone when this returns. `guests` came before.
pub(crate) async fn accept(
    gate: Gate,
    guests: Vec<Guest>,
    hub: Arc<Hub>,
    marks: TaskTracker,
    stop: CancellationToken,
) {
    let (sessions, silent) = (TaskTracker::new(), ConnectionSlots::new(SILENT_MAX));
    let serve = |guest: Guest| {
        let Guest {
            peer,
            inbox,
            refusal,
            ..
        } = guest;
        sessions.spawn(session::serve(
            hub.clone(),
            peer,
            inbox,
            marks.clone(),
            (refusal, silent.enter()),
        ));
    };
    guests.into_iter().for_each(serve);
    loop {
        let guest = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            guest = gate.guest(open(&sessions, &silent)) => guest,
        };
        if let Some(guest) = guest {
            serve(guest);
        }
    }
}

/// How many sessions there are, and how many connections.
fn open(connections: &TaskTracker, silent: &ConnectionSlots) -> (usize, usize) {
    let all = connections.len();
    (all.saturating_sub(silent.taken()), all)
}
