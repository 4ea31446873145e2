//! One SEQPACKET connection: sends and receives whole messages and file descriptors, and blocks only in
//! [`Connection::wait`].
//!
//! The descriptor is non-blocking, so that an asynchronous runtime can watch it (`AsFd`); `wait` is for
//! programs without one.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recvmsg, sendmsg, socket_with,
};

use crate::SocketError;
use crate::closing::{SocketFd, close_in_thread};
use batchweave_wire::MESSAGE_BYTES_MAX;

/// Most bytes of a socket's path: the kernel's `sun_path` without its final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The user id that stands for all users without an id in this user namespace.
pub const OVERFLOW_UID: u32 = 65_534;
/// `SO_PEERPIDFD`, Linux 6.5 and later.
const SO_PEERPIDFD: i32 = 77;
/// Pause between tries while the daemon's queue of connections is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// The identity of the peer, from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The effective user id at the time of the connection.
    pub uid: u32,
    /// The process id, for messages to people only; `None` for a process of another pid namespace.
    pub pid: Option<u32>,
}

impl Peer {
    /// Returns whether a daemon of user `own` accepts this peer.
    pub fn allowed(self, own: u32, others: &[u32]) -> bool {
        self.uid != OVERFLOW_UID && (self.uid == own || others.contains(&self.uid))
    }
}

/// Returns the effective user id of this process.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A received message: its length in the caller's buffer, and the descriptor sent with it.
#[derive(Debug)]
pub struct Packet {
    /// Length of the message in bytes.
    pub bytes: usize,
    pub fd: Option<OwnedFd>,
}

/// The condition that `wait` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// A message to receive, or the end.
    Readable,
    /// Space to send, or the end.
    Writable,
}

/// A connected, non-blocking socket.
#[derive(Debug)]
pub struct Connection {
    fd: SocketFd,
}

pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix, SocketError> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(SocketError::PathTooLong {
            path: path.to_owned(),
            bytes,
            limit: SOCKET_PATH_BYTES_MAX,
        });
    }
    SocketAddrUnix::new(path).map_err(|e| system(path, "address", e))
}

pub(crate) fn new_socket(path: &Path) -> Result<OwnedFd, SocketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|e| system(path, "socket", e))
}

pub(crate) fn system(path: &Path, call: &'static str, source: Errno) -> SocketError {
    SocketError::System {
        path: PathBuf::from(path),
        call,
        source: source.into(),
    }
}

fn descriptors(control: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    fds
}

impl Connection {
    /// Wraps an accepted socket. `untrusted_fds`: its untrusted peer can send descriptors, which are closed
    /// in a separate thread, as is the socket.
    pub(crate) fn accepted(fd: OwnedFd, untrusted_fds: bool) -> Self {
        let fd = SocketFd::new(fd, untrusted_fds);
        Self { fd }
    }

    fn new(fd: OwnedFd) -> Self {
        Self::accepted(fd, false)
    }

    /// Connects. Retries while the daemon's queue is full, until the deadline; fails immediately when there
    /// is no daemon.
    pub fn connect(path: &Path, deadline: Instant) -> Result<Self, SocketError> {
        let address = address(path)?;
        let fd = new_socket(path)?;
        loop {
            let source = match connect(&fd, &address) {
                Ok(()) => return Ok(Self::new(fd)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(CONNECT_PAUSE);
                    continue;
                }
                Err(e) => e,
            };
            let path = path.to_owned();
            return Err(match source {
                Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN => SocketError::NoDaemon {
                    path,
                    source: source.into(),
                },
                _ => SocketError::System {
                    path,
                    call: "connect",
                    source: source.into(),
                },
            });
        }
    }

    /// Returns two connected ends in one process, for tests.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self::new(a), Self::new(b)))
    }

    /// Sends one message, optionally with a descriptor. Fails with `WouldBlock` when the peer reads too
    /// slowly; any other error means that the peer is gone.
    pub fn send(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds
            && !control.push(SendAncillaryMessage::ScmRights(fds))
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            match sendmsg(
                &self.fd,
                &[IoSlice::new(message)],
                &mut control,
                SendFlags::NOSIGNAL,
            ) {
                Ok(sent) if sent == message.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Receives one message into `buffer` (at least 64 KiB). Returns `None` when the peer is gone. Fails
    /// with `WouldBlock` when there is no message, and with `InvalidData` for a message above the protocol's
    /// limit or with several descriptors. With `untrusted_fds`, received descriptors are closed, not returned.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
        assert!(
            buffer.len() >= MESSAGE_BYTES_MAX,
            "a short buffer would lose the rest of a message"
        );
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(buffer)];
            match recvmsg(&self.fd, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        };
        let mut fds = descriptors(&mut control);
        let several = fds.len() > 1;
        if self.fd.untrusted_fds {
            fds.drain(..).for_each(close_in_thread);
        }
        if received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
            || several
        {
            let reason = "a message larger than 64 KiB or with several descriptors";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        Ok(Some(Packet {
            bytes: received.bytes,
            fd: fds.pop(),
        }))
    }

    /// Waits until the socket is ready or the time is over; returns whether it is ready.
    pub fn wait(&self, interest: Interest, timeout: Duration) -> io::Result<bool> {
        let flags = match interest {
            Interest::Readable => PollFlags::IN,
            Interest::Writable => PollFlags::OUT,
        };
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            // A timeout beyond the range of the clock waits without limit.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.fd, flags)], left.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Returns the kernel memory, in bytes, of the messages sent that the peer has not read yet: more than
    /// their length, and zero once all are read or the peer is gone.
    pub fn unread(&self) -> io::Result<u64> {
        let mut bytes: i32 = 0;
        // SAFETY: the request writes one int to `bytes`.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u64::from(bytes.unsigned_abs()))
    }

    /// Returns the identity of the peer.
    pub fn peer(&self) -> io::Result<Peer> {
        // Not by rustix, whose type for a pid excludes 0, the pid of a process of another namespace.
        let mut found = libc::ucred {
            pid: 0,
            uid: OVERFLOW_UID,
            gid: OVERFLOW_UID,
        };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the option writes one `ucred` to `found`, whose size is given.
        let result = unsafe {
            let out = (&raw mut found).cast();
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                out,
                &raw mut size,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Peer {
            uid: found.uid,
            pid: u32::try_from(found.pid).ok().filter(|pid| *pid > 0),
        })
    }

    /// Returns a descriptor that becomes readable when the process that made the connection ends, even while
    /// a forked child keeps the socket open. `None` before Linux 6.5.
    pub fn peer_pidfd(&self) -> Option<OwnedFd> {
        let mut fd: i32 = -1;
        let mut size = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the option writes one int to `fd`, whose size is given.
        let result = unsafe {
            let out = (&raw mut fd).cast();
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERPIDFD,
                out,
                &raw mut size,
            )
        };
        if result != 0 || fd < 0 {
            return None;
        }
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}
