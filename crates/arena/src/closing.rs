//! Closing descriptors of untrusted peers. The last close of a descriptor can block for as long as its
//! creator likes (a socket with SO_LINGER, a file of a FUSE server), and a message that is dropped unread
//! closes the descriptors in it.
//!
//! Invariants:
//! - where the kernel can refuse descriptors (`SO_PASSRIGHTS`, Linux 6.16), none is received;
//! - elsewhere, a serving thread never closes such a socket or a descriptor received from it: a bounded
//!   number of separate threads do, and no connection is accepted while many wait to be closed.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// `SO_PASSRIGHTS`, Linux 6.16 and later; accepted connections inherit it from their listener.
const SO_PASSRIGHTS: i32 = 83;
/// Most threads that close descriptors at the same time.
const THREADS_MAX: usize = 8;
/// Most descriptors that may wait to be closed; above it, a daemon should not accept connections.
pub const CLOSING_MAX: usize = 256;

/// The descriptor of a connection.
#[derive(Debug)]
pub(crate) struct SocketFd {
    fd: ManuallyDrop<OwnedFd>,
    /// Whether an untrusted peer can send descriptors to it. If so, a separate thread closes it and them.
    pub(crate) untrusted_fds: bool,
}

impl SocketFd {
    pub(crate) fn new(fd: OwnedFd, untrusted_fds: bool) -> Self {
        let fd = ManuallyDrop::new(fd);
        Self { fd, untrusted_fds }
    }
}

impl Drop for SocketFd {
    fn drop(&mut self) {
        // SAFETY: taken here only, and `self.fd` is not used after this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if self.untrusted_fds {
            close_in_thread(fd);
        }
        // Otherwise `fd` is closed here.
    }
}

impl AsFd for SocketFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for SocketFd {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

struct Closing {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    waiting: VecDeque::new(),
    threads: 0,
});

/// Makes the kernel refuse descriptors in messages to this socket and to connections accepted from it.
/// Returns false where it cannot.
pub(crate) fn refuse_descriptors(socket: BorrowedFd<'_>) -> bool {
    let no: i32 = 0;
    // SAFETY: the option reads one int from `no`, whose size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    result == 0
}

/// Closes a descriptor in a separate thread, because the close may block.
pub(crate) fn close_in_thread(fd: OwnedFd) {
    let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.waiting.push_back(fd);
    if closing.threads == THREADS_MAX {
        return;
    }
    let thread = thread::Builder::new().name("closing".to_owned());
    // If no thread can be started, the next close tries again.
    if thread.spawn(close_all).is_ok() {
        closing.threads += 1;
    }
}

fn close_all() {
    loop {
        let next = {
            let mut closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
            let next = closing.waiting.pop_front();
            closing.threads -= usize::from(next.is_none());
            next
        };
        match next {
            Some(fd) => drop(fd),
            None => return,
        }
    }
}

/// Returns the number of descriptors that are being closed or wait for it.
pub fn closing() -> usize {
    let closing = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    closing.waiting.len() + closing.threads
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

    use super::*;
    use crate::Connection;
    use batchweave_wire::MESSAGE_BYTES_MAX;

    const LINGERS: Duration = Duration::from_mins(2);

    /// A socket whose last close waits until `reader` is gone.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (reader, _) = listener.accept().unwrap();
        full.set_nonblocking(true).unwrap();
        let why = loop {
            if let Err(why) = full.write_all(&[0; 1 << 12]) {
                break why;
            }
        };
        assert_eq!(why.kind(), ErrorKind::WouldBlock);
        sockopt::set_socket_linger(&full, Some(LINGERS)).unwrap();
        (full, reader)
    }

    #[test]
    fn neither_a_message_nor_the_end_waits_for_a_descriptor() {
        let family = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (near, far) = socketpair(family.0, family.1, SocketFlags::NONBLOCK, None).unwrap();
        let stranger = Connection::accepted(near, false);
        let daemon = Connection::accepted(far, true);
        let (heard, first_reader) = lingering();
        let (unheard, second_reader) = lingering();
        for fd in [heard, unheard] {
            stranger.send(b"x", Some(fd.as_fd())).unwrap();
        }
        let begun = Instant::now();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let packet = daemon.recv(&mut buffer).unwrap().unwrap();
        assert!(packet.bytes == 1 && packet.fd.is_none());
        drop(daemon);
        assert!(begun.elapsed() < LINGERS / 2, "{:?}", begun.elapsed());
        assert!(closing() > 0, "they hang elsewhere");
        drop((first_reader, second_reader));
        while closing() > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
