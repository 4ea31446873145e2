//! A rank's socket for the runtime: whole messages in and out, and the end of the peer's process.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use batchweave_arena::{Connection, Segment};
use batchweave_wire::{DaemonMessage, MESSAGE_BYTES_MAX};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::node::Outgoing;
#[cfg(feature = "simulation")]
use crate::run::simulation::{Heard, Wire};

/// The sending side. Clones share the socket.
#[derive(Clone)]
pub(crate) enum Peer {
    /// A process on this machine.
    Process(Process),
    /// A rank of the simulator.
    #[cfg(feature = "simulation")]
    Simulated(Wire),
}

/// The receiving side.
pub(crate) enum Inbox {
    Process(Process, Box<[u8]>),
    #[cfg(feature = "simulation")]
    Simulated(Heard),
}

/// A socket, and the process at its other end.
#[derive(Clone)]
pub(crate) struct Process {
    /// The user that it runs as.
    uid: u32,
    socket: Arc<AsyncFd<Connection>>,
    /// Readable once that process has ended.
    pidfd: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// Has the runtime watch a descriptor.
#[expect(
    deprecated,
    reason = "its replacement is unsafe: the caller vouches that the descriptor stays open, which \
              holds for all types here, since they own theirs"
)]
pub(crate) fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}

impl Peer {
    pub(crate) fn new(connection: Connection, uid: u32) -> io::Result<(Self, Inbox)> {
        let pidfd = connection
            .peer_pidfd()
            .map(|fd| watch(fd, Interest::READABLE))
            .transpose()?
            .map(Arc::new);
        let process = Process {
            uid,
            socket: Arc::new(watch(connection, Interest::READABLE | Interest::WRITABLE)?),
            pidfd,
        };
        let inbox = Inbox::Process(process.clone(), vec![0; MESSAGE_BYTES_MAX].into());
        Ok((Self::Process(process), inbox))
    }

    /// The user at the other end.
    pub(crate) fn uid(&self) -> u32 {
        match self {
            Self::Process(process) => process.uid,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => batchweave_arena::own_uid(),
        }
    }

    /// False when the peer reads too slowly; an error when it is gone.
    pub(crate) fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        match self {
            Self::Process(process) => process.try_send(outgoing),
            #[cfg(feature = "simulation")]
            Self::Simulated(wire) => wire.try_send(outgoing),
        }
    }

    /// Until there may be room to send.
    pub(crate) async fn writable(&self) {
        match self {
            Self::Process(process) => {
                if process.socket.writable().await.is_err() {
                    pending::<()>().await;
                }
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(wire) => wire.writable().await,
        }
    }

    /// Until the process that connected has ended, even if a forked child keeps the socket open.
    pub(crate) async fn ended(&self) {
        match self {
            Self::Process(peer) => match &peer.pidfd {
                Some(pidfd) if pidfd.readable().await.is_ok() => {}
                _ => pending().await,
            },
            #[cfg(feature = "simulation")]
            Self::Simulated(wire) => wire.ended().await,
        }
    }
}

impl Process {
    fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        let (bytes, segment) = parts(outgoing)?;
        let fd: Option<BorrowedFd<'_>> = segment.map(|segment| segment.as_fd());
        // Through `try_io`, so that a full socket clears the readiness that `writable` waits for.
        let send = |connection: &Connection| connection.send(&bytes, fd);
        match self.socket.try_io(Interest::WRITABLE, send) {
            Ok(()) => Ok(true),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(why),
        }
    }
}

/// A message's bytes, and the segment whose descriptor goes with it.
pub(crate) fn parts(outgoing: &Outgoing) -> io::Result<(Vec<u8>, Option<&Arc<Segment>>)> {
    let (bytes, segment) = match outgoing {
        Outgoing::Message(message) => (message.encode(), None),
        Outgoing::Segment(message, segment) => {
            (DaemonMessage::Segment(*message).encode(), Some(segment))
        }
    };
    Ok((bytes.map_err(io::Error::other)?, segment))
}

impl Inbox {
    /// The next message; None when the peer is gone. What is no message at all comes as no bytes,
    /// which decodes to an error.
    pub(crate) async fn receive(&mut self) -> Option<Vec<u8>> {
        let (process, buffer) = match self {
            Self::Process(process, buffer) => (process, buffer),
            #[cfg(feature = "simulation")]
            Self::Simulated(heard) => return heard.receive().await,
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
