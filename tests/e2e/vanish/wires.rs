//! Connections that pass through the test: a rank's socket with its descriptors, and the daemon's
//! connections to the store. All of one kind can be cut, or stopped for a while.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use batchweave_arena::{Connection, Listener, Packet};
use batchweave_wire::MESSAGE_BYTES_MAX;

const PAUSE: Duration = Duration::from_millis(1);

/// The state of all connections of a kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic {
    frozen: Arc<AtomicBool>,
    cuts: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
}

impl Traffic {
    /// Cuts all connections; new ones pass. A rank keeps the messages that it received.
    pub(crate) fn cut(&self) {
        self.cuts.fetch_add(1, SeqCst);
    }

    /// Stops all traffic for a while.
    pub(crate) fn freeze(&self, lasts: Duration) {
        self.frozen.store(true, SeqCst);
        thread::sleep(lasts);
        self.frozen.store(false, SeqCst);
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(SeqCst)
    }

    /// Runs `step` until it returns that nothing more can pass, or until a cut.
    fn pass(&self, mut step: impl FnMut() -> Passed) {
        let before = self.cuts.load(SeqCst);
        while self.cuts.load(SeqCst) == before {
            if self.frozen.load(SeqCst) {
                thread::sleep(PAUSE);
                continue;
            }
            match step() {
                Passed::Something => {}
                Passed::Nothing => thread::sleep(PAUSE),
                Passed::End => return,
            }
        }
    }
}

enum Passed {
    Something,
    Nothing,
    End,
}

/// One direction of a rank's socket, with the message that waits for space.
struct Lane<'a> {
    from: &'a Connection,
    to: &'a Connection,
    waits: Option<(Vec<u8>, Packet)>,
}

impl Lane<'_> {
    fn step(&mut self, buffer: &mut [u8]) -> Passed {
        if self.waits.is_none() {
            match self.from.recv(buffer) {
                Ok(Some(packet)) => {
                    self.waits = Some((buffer[..packet.bytes].to_vec(), packet));
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Passed::Nothing,
                _ => return Passed::End,
            }
        }
        let Some((bytes, packet)) = &self.waits else {
            return Passed::Nothing;
        };
        let fd = packet.fd.as_ref().map(AsFd::as_fd);
        match self.to.send(bytes, fd) {
            Ok(()) => self.waits = None,
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Passed::Nothing,
            Err(_) => return Passed::End,
        }
        Passed::Something
    }
}

/// Serves `path` by forwarding all messages to `daemon`.
pub(crate) fn between_ranks_and(daemon: PathBuf, path: &Path) -> Traffic {
    let listener = Listener::bind(path, 0o600).unwrap();
    let traffic = Traffic::default();
    let all = traffic.clone();
    thread::spawn(move || {
        loop {
            let Ok((rank, _)) = listener.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            let (traffic, daemon) = (all.clone(), daemon.clone());
            thread::spawn(move || {
                // The daemon does not listen: the rank finds its connection closed, and retries.
                let soon = Instant::now() + Duration::from_secs(5);
                if let Ok(daemon) = Connection::connect(&daemon, soon) {
                    traffic.open.fetch_add(1, SeqCst);
                    pass_messages(&traffic, &rank, &daemon);
                    traffic.open.fetch_sub(1, SeqCst);
                }
            });
        }
    });
    traffic
}

fn pass_messages(traffic: &Traffic, rank: &Connection, daemon: &Connection) {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let lane = |from, to| Lane {
        from,
        to,
        waits: None,
    };
    let (mut up, mut down) = (lane(rank, daemon), lane(daemon, rank));
    let mut left = false;
    traffic.pass(|| match (up.step(&mut buffer), down.step(&mut buffer)) {
        (Passed::End, _) => {
            left = true;
            Passed::End
        }
        (_, Passed::End) => Passed::End,
        (Passed::Nothing, Passed::Nothing) => Passed::Nothing,
        _ => Passed::Something,
    });
    if !left {
        return see_out(&mut up);
    }
    // A rank that leaves has waited until its last messages were read: they must not be lost here.
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline && daemon.unread().is_ok_and(|bytes| bytes > 0) {
        thread::sleep(PAUSE);
    }
    while matches!(daemon.recv(&mut buffer), Ok(Some(_))) {}
}

/// Ends a rank's connection. The rank reads to its end, as if the daemon had gone. The daemon must
/// not see the end before the rank has left, because it then reuses the rank's frames.
fn see_out(up: &mut Lane<'_>) {
    let end = up.from.as_fd().try_clone_to_owned().unwrap();
    // The connection may be closed already.
    let _ = UnixStream::from(end).shutdown(Shutdown::Write);
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    while !matches!(up.step(&mut buffer), Passed::End) {
        thread::sleep(PAUSE);
    }
}

/// Listens on a port and forwards all bytes to `store`.
pub(crate) fn before(store: SocketAddr) -> (Traffic, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let traffic = Traffic::default();
    let all = traffic.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // The store does not listen: the client finds its connection closed.
            let Ok(server) = TcpStream::connect(store) else {
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let traffic = all.clone();
                thread::spawn(move || pass_bytes(&traffic, from, to));
            }
        }
    });
    (traffic, address)
}

fn pass_bytes(traffic: &Traffic, mut from: TcpStream, mut to: TcpStream) {
    from.set_read_timeout(Some(Duration::from_millis(10)))
        .unwrap();
    let mut buffer = vec![0; 64 << 10];
    traffic.pass(|| match from.read(&mut buffer) {
        Ok(0) => Passed::End,
        Ok(count) if to.write_all(&buffer[..count]).is_ok() => Passed::Something,
        Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Passed::Something
        }
        _ => Passed::End,
    });
    for end in [from, to] {
        // The connection may be closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}
