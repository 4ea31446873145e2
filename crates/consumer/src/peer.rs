//! A rank's socket for the runtime: whole messages in and out, and the end of the peer's process.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use batchweave_arena::Connection;
use batchweave_arena::wire::MESSAGE_BYTES_MAX;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::hub::Outgoing;

/// The sending side. Clones share the socket.
#[derive(Clone)]
pub(crate) struct Peer {
    socket: Arc<AsyncFd<Connection>>,
    process: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// The receiving side.
pub(crate) struct Inbox {
    peer: Peer,
    buffer: Box<[u8]>,
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
    pub(crate) fn new(connection: Connection) -> io::Result<(Self, Inbox)> {
        let process = connection
            .peer_pidfd()
            .map(|fd| watch(fd, Interest::READABLE))
            .transpose()?
            .map(Arc::new);
        let peer = Self {
            socket: Arc::new(watch(connection, Interest::READABLE | Interest::WRITABLE)?),
            process,
        };
        let buffer = vec![0; MESSAGE_BYTES_MAX].into();
        let inbox = Inbox {
            peer: peer.clone(),
            buffer,
        };
        Ok((peer, inbox))
    }

    /// False when the peer reads too slowly; an error when it is gone.
    pub(crate) fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        let (bytes, fd): (Vec<u8>, Option<BorrowedFd<'_>>) = match outgoing {
            Outgoing::Message(message) => (encoded(message.encode())?, None),
            Outgoing::Segment(message, segment) => {
                let message = batchweave_arena::wire::DaemonMessage::Segment(*message);
                (encoded(message.encode())?, Some(segment.as_fd()))
            }
        };
        // Through `try_io`, so that a full socket clears the readiness that `writable` waits for.
        let send = |connection: &Connection| connection.send(&bytes, fd);
        match self.socket.try_io(Interest::WRITABLE, send) {
            Ok(()) => Ok(true),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Until there may be room to send.
    pub(crate) async fn writable(&self) {
        if self.socket.writable().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Until the process that connected has ended, even if a forked child keeps the socket open.
    pub(crate) async fn ended(&self) {
        match &self.process {
            Some(process) if process.readable().await.is_ok() => {}
            _ => pending().await,
        }
    }
}

fn encoded(message: Result<Vec<u8>, batchweave_arena::wire::WireError>) -> io::Result<Vec<u8>> {
    message.map_err(io::Error::other)
}

impl Inbox {
    /// The next message; None when the peer is gone. What is no message at all comes as no bytes,
    /// which decodes to an error.
    pub(crate) async fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut ready = self.peer.socket.readable().await.ok()?;
            match ready.try_io(|socket| socket.get_ref().recv(&mut self.buffer)) {
                Ok(Ok(Some(packet))) => return Some(self.buffer[..packet.bytes].to_vec()),
                Ok(Err(why)) if why.kind() == io::ErrorKind::InvalidData => return Some(Vec::new()),
                Ok(_) => return None,
                Err(_would_block) => {}
            }
        }
    }
}
