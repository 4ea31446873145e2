//! The socket of one rank: sending and receiving whole messages, and noticing the end of the rank's process.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::{Connection as ArenaConnection, Peer};
use batchweave_wire::{Fault, MESSAGE_BYTES_MAX};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::simulated::{SimulatedInbox, SimulatedSocket};
use crate::node::Outgoing;

/// A rank that is waiting is notified of the same reason again after this.
pub(super) const NOTIFY_AGAIN: Duration = Duration::from_secs(5);

/// A rank that has connected; its hello is not read yet.
pub(crate) struct PendingConnection {
    pub(super) connection: Connection,
    pub(super) inbox: Inbox,
    /// The reason to refuse it, if there is one.
    pub(super) refusal: Option<Fault>,
    /// The reason of waiting that it was notified of last; `None` while its socket accepted no message.
    pub(super) last_reported: Option<String>,
}

impl PendingConnection {
    /// A rank that was not notified of anything yet.
    pub(crate) fn new(connection: Connection, inbox: Inbox, refusal: Option<Fault>) -> Self {
        Self {
            connection,
            inbox,
            refusal,
            last_reported: None,
        }
    }
}

/// The sending side of a socket. Clones share it.
#[derive(Clone)]
pub(crate) enum Connection {
    Process(Process),
    Simulated(SimulatedSocket),
}

/// The receiving side of a socket.
pub(crate) enum Inbox {
    Process(Process, Box<[u8]>),
    Simulated(SimulatedInbox),
}

/// A socket, and the process at its other end.
#[derive(Clone)]
pub(crate) struct Process {
    peer: Peer,
    socket: Arc<AsyncFd<ArenaConnection>>,
    /// Readable once the process has ended.
    pidfd: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "its replacement is unsafe: the caller vouches that the descriptor stays open, which \
              holds for all types here, since they own theirs"
)]
pub(super) fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}

impl Connection {
    /// Wraps an accepted connection; returns its two sides.
    pub(crate) fn new(connection: ArenaConnection, peer: Peer) -> io::Result<(Self, Inbox)> {
        let pidfd = connection
            .peer_pidfd()
            .map(|fd| watch(fd, Interest::READABLE))
            .transpose()?
            .map(Arc::new);
        let process = Process {
            peer,
            socket: Arc::new(watch(connection, Interest::READABLE | Interest::WRITABLE)?),
            pidfd,
        };
        let inbox = Inbox::Process(process.clone(), vec![0; MESSAGE_BYTES_MAX].into());
        Ok((Self::Process(process), inbox))
    }

    /// The user and process at the other end.
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Process(process) => process.peer,
            Self::Simulated(_) => Peer {
                uid: batchweave_arena::own_uid(),
                pid: None,
            },
        }
    }

    /// Sends a message without waiting. Returns false if the socket is full; fails if the rank is gone.
    pub(crate) fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        match self {
            Self::Process(process) => process.try_send(outgoing),
            Self::Simulated(wire) => wire.try_send(outgoing),
        }
    }

    /// Waits until there may be room to send.
    pub(crate) async fn writable(&self) {
        match self {
            Self::Process(process) => {
                if process.socket.writable().await.is_err() {
                    pending::<()>().await;
                }
            }
            Self::Simulated(wire) => wire.writable().await,
        }
    }

    /// Waits until the process that connected has ended, even if a forked child keeps the socket open.
    pub(crate) async fn ended(&self) {
        match self {
            Self::Process(peer) => match &peer.pidfd {
                Some(pidfd) if pidfd.readable().await.is_ok() => {}
                _ => pending().await,
            },
            Self::Simulated(wire) => wire.ended().await,
        }
    }
}

impl Process {
    fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        let (bytes, segment) = outgoing.encode()?;
        let fd: Option<BorrowedFd<'_>> = segment.map(|segment| segment.as_fd());
        // Through `try_io`, so that a full socket clears the readiness that `writable` waits for.
        let send = |connection: &ArenaConnection| connection.send(&bytes, fd);
        match self.socket.try_io(Interest::WRITABLE, send) {
            Ok(()) => Ok(true),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(why),
        }
    }
}

impl Inbox {
    /// Receives the next message; `None` when the rank is gone. A packet that is not a message is returned as no
    /// bytes, which fail to decode.
    pub(crate) async fn receive(&mut self) -> Option<Vec<u8>> {
        let (process, buffer) = match self {
            Self::Process(process, buffer) => (process, buffer),
            Self::Simulated(inbox) => return inbox.receive().await,
        };
        loop {
            let mut ready = process.socket.readable().await.ok()?;
            match ready.try_io(|socket| socket.get_ref().recv(buffer)) {
                Ok(Ok(Some(packet))) => return Some(buffer[..packet.bytes].to_vec()),
                Ok(Err(why)) if why.kind() == io::ErrorKind::InvalidData => return Some(Vec::new()),
                Ok(_) => return None,
                Err(_would_block) => {}
            }
        }
    }
}
