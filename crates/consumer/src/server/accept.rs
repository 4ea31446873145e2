//! The listening socket: which users may connect, and how many connections are served.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::{
    CLOSING_MAX, Connection as ArenaConnection, Listener, Peer, closing, own_uid,
};
use batchweave_daemon::connection_slots::ConnectionSlots;
use batchweave_wire::{ErrorName, Fault};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Inbox, PendingConnection, watch};
use super::handshake::turn_away;
use super::session;
use crate::config::SocketTable;
use crate::error::RunError;
use crate::node::Node;

/// Connections above the limit that receive the reason; further ones are closed at once.
const REFUSED_MAX: usize = 128;

/// Connections that have not sent a message yet.
const SILENT_MAX: usize = 64;
/// Connections of users that may not connect which receive the reason at a time; the rest are closed at once.
const NOT_ALLOWED_MAX: usize = 16;

/// The bound socket, and its limits.
pub(crate) struct Acceptor {
    listener: AsyncFd<Listener>,
    allow_uids: Vec<u32>,
    max_sessions: usize,
    not_allowed: Arc<Semaphore>,
}

impl Acceptor {
    /// Binds the socket; fails if another daemon serves it.
    pub(crate) fn open(table: &SocketTable) -> Result<Self, RunError> {
        let mode = table.mode_bits().unwrap_or(0o600);
        let listener = Listener::bind(&table.path, mode)?;
        let listener = watch(listener, Interest::READABLE).map_err(RunError::Runtime)?;
        Ok(Self {
            listener,
            allow_uids: table.allow_uids.clone(),
            max_sessions: table.max_sessions,
            not_allowed: Arc::new(Semaphore::new(NOT_ALLOWED_MAX)),
        })
    }

    async fn accept(&self) -> io::Result<(ArenaConnection, Peer)> {
        self.listener
            .async_io(Interest::READABLE, Listener::accept)
            .await
    }

    /// Accepts the next rank, with the reason to refuse it. Returns `None` if accepting failed, if the user may
    /// not connect, or if too many are refused already. The arguments count sessions and all connections.
    pub(super) async fn next(&self, (sessions, all): (usize, usize)) -> Option<PendingConnection> {
        while closing() >= CLOSING_MAX {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let accepted = self.accept().await.and_then(|(connection, peer)| {
            let (connection, inbox) = Connection::new(connection, peer)?;
            Ok((connection, inbox, peer))
        });
        match accepted {
            Ok((connection, inbox, peer)) if !peer.allowed(own_uid(), &self.allow_uids) => {
                self.turn_away(connection, inbox, peer);
                None
            }
            Ok((connection, inbox, _)) => {
                let refusal = self.refusal(sessions);
                (all < self.max_sessions + REFUSED_MAX)
                    .then(|| PendingConnection::new(connection, inbox, refusal))
            }
            Err(why) => {
                tracing::warn!(%why, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }

    /// Sends the reason to a user that may not connect, within a limit that is separate from that of ranks.
    fn turn_away(&self, connection: Connection, inbox: Inbox, peer: Peer) {
        let Ok(slot) = Arc::clone(&self.not_allowed).try_acquire_owned() else {
            return;
        };
        let message = format!("user id {} may not connect", peer.uid);
        let fault = Fault::new(ErrorName::NotAllowed, message);
        tokio::spawn(async move {
            turn_away(connection, inbox, fault).await;
            drop(slot);
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

/// Accepts ranks until `stop`; the socket's file is removed when this returns. `pending` connected before.
pub(crate) async fn accept(
    acceptor: Acceptor,
    pending: Vec<PendingConnection>,
    node: Arc<Node>,
    marks: TaskTracker,
    stop: CancellationToken,
) {
    let (sessions, silent) = (TaskTracker::new(), ConnectionSlots::new(SILENT_MAX));
    let serve = |pending: PendingConnection| {
        let session = session::serve(node.clone(), pending, marks.clone(), silent.enter());
        sessions.spawn(session);
    };
    pending.into_iter().for_each(serve);
    loop {
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = acceptor.next(count(&sessions, &silent)) => next,
        };
        if let Some(next) = next {
            serve(next);
        }
    }
}

/// Returns the numbers of sessions and of all connections.
fn count(connections: &TaskTracker, silent: &ConnectionSlots) -> (usize, usize) {
    let all = connections.len();
    (all.saturating_sub(silent.taken()), all)
}
