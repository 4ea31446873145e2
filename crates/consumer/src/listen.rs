//! The daemon's socket and the accept loop: who may connect, and how many.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::wire::{ErrorName, Fault};
use batchweave_arena::{Connection, Listener, Peer as Who, own_uid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::SocketTable;
use crate::error::RunError;
use crate::hub::Hub;
use crate::lobby::Guest;
use crate::peer::{Peer, watch};
use crate::session;

/// Connections above the limit that are told so; what comes beyond is closed at once.
const REFUSED_MAX: usize = 64;

/// A bound socket.
pub(crate) struct Gate {
    listener: AsyncFd<Listener>,
    allow_uids: Vec<u32>,
    max_sessions: usize,
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
        })
    }

    async fn next(&self) -> io::Result<(Connection, Who)> {
        self.listener
            .async_io(Interest::READABLE, Listener::accept)
            .await
    }

    /// The next rank, with why it is refused if it is; none when it could not be accepted, or when too
    /// many are refused already.
    pub(crate) async fn guest(&self, open: usize) -> Option<Guest> {
        let accepted = self.next().await;
        match accepted.and_then(|(connection, who)| Ok((Peer::new(connection, who.uid)?, who))) {
            Ok(((peer, inbox), who)) => (open < self.max_sessions + REFUSED_MAX).then(|| Guest {
                peer,
                inbox,
                refusal: self.refusal(who, open),
                told: None,
            }),
            Err(why) => {
                tracing::warn!(%why, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }

    fn refusal(&self, who: Who, sessions: usize) -> Option<Fault> {
        if !who.allowed(own_uid(), &self.allow_uids) {
            let message = format!("user id {} may not connect", who.uid);
            return Some(Fault::new(ErrorName::NotAllowed, message));
        }
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
    let sessions = TaskTracker::new();
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
            refusal,
        ));
    };
    guests.into_iter().for_each(serve);
    loop {
        let guest = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            guest = gate.guest(sessions.len()) => guest,
        };
        if let Some(guest) = guest {
            serve(guest);
        }
    }
}
