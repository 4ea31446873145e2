//! `SO_RCVLOWAT`: a reader of a large body is woken when a large part has arrived, not for every packet.
//! A wake-up costs more than the packet's copy, most of all on a virtual machine.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes `socket` readable only when `bytes` bytes are there, or its end. The kernel caps the number by
/// the size of its buffers.
pub fn receive_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads one int, of the given
    // length, from a local variable.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(stream: &TcpStream, wait: i64) -> bool {
        let wait = Timespec {
            tv_sec: wait,
            tv_nsec: 0,
        };
        let mut all = [PollFd::new(stream, PollFlags::IN)];
        poll(&mut all, Some(&wait)).unwrap() == 1
    }

    #[test]
    fn readable_from_the_mark_on_or_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        receive_low_water(ours.as_fd(), 100_000).unwrap();
        theirs.write_all(&[0; 1000]).unwrap();
        assert!(!readable(&ours, 0), "below the mark");
        theirs.write_all(&vec![0; 99_000]).unwrap();
        assert!(readable(&ours, 60));
        receive_low_water(ours.as_fd(), 150_000).unwrap();
        assert!(!readable(&ours, 0));
        receive_low_water(ours.as_fd(), 100_000).unwrap();
        assert!(readable(&ours, 60), "the mark came down to what is there");
        receive_low_water(ours.as_fd(), 150_000).unwrap();
        drop(theirs);
        assert!(readable(&ours, 60), "nothing more comes");
    }
}
