//! Sockets: one daemon per path, whole messages, descriptors, and peers that die.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use batchweave_arena::{
    Connection, Interest, Listener, OVERFLOW_UID, Packet, Peer, SocketError, own_uid,
};
use batchweave_wire::{FRAMES_MAX, MESSAGE_BYTES_MAX};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    (dir, path)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn receive(connection: &Connection, buffer: &mut [u8]) -> Option<Packet> {
    assert!(
        connection
            .wait(Interest::Readable, Duration::from_secs(10))
            .unwrap(),
        "nothing came"
    );
    connection.recv(buffer).unwrap()
}

fn bind_error(path: &Path) -> String {
    Listener::bind(path, 0o600).unwrap_err().to_string()
}

/// Leaves a bound socket without a listener, as a killed daemon does.
fn leave_stale(path: &Path) {
    let address = rustix::net::SocketAddrUnix::new(path).unwrap();
    let family = rustix::net::AddressFamily::UNIX;
    let fd = rustix::net::socket(family, rustix::net::SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&fd, &address).unwrap();
}

#[test]
fn a_message_and_its_descriptor_arrive_whole() {
    let (_dir, path) = folder();
    let listener = Listener::bind(&path, 0o660).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o660
    );
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let rank = Connection::connect(&path, soon()).unwrap();
    let (daemon, peer) = listener.accept().unwrap();
    assert_eq!(peer.uid, own_uid());

    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    assert_eq!(
        rank.recv(&mut buffer).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let (mut read, write) = std::io::pipe().unwrap();
    let large: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|i| i as u8).collect();
    daemon.send(&large, Some(write.as_fd())).unwrap();
    daemon.send(b"second", None).unwrap();
    drop(write);
    let packet = receive(&rank, &mut buffer).unwrap();
    assert_eq!(&buffer[..packet.bytes], large);
    std::io::Write::write_all(&mut File::from(packet.fd.unwrap()), b"through").unwrap();
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    assert_eq!(
        text, "through",
        "and no copy of the descriptor is left open"
    );
    let packet = receive(&rank, &mut buffer).unwrap();
    assert_eq!(&buffer[..packet.bytes], b"second");
    assert!(packet.fd.is_none());

    drop(daemon);
    assert!(receive(&rank, &mut buffer).is_none(), "the end");
    assert!(rank.send(b"late", None).is_err());
    drop(listener);
    assert!(!path.exists(), "removed at a clean stop");
}

/// The daemon must not keep a descriptor of an untrusted peer: its close may block.
#[test]
fn a_daemon_takes_no_descriptor() {
    let (_dir, path) = folder();
    let listener = Listener::bind(&path, 0o600).unwrap();
    let rank = Connection::connect(&path, soon()).unwrap();
    let (mut read, write) = std::io::pipe().unwrap();
    // The kernel refuses it, or the daemon closes it.
    let refused = rank.send(b"take this", Some(write.as_fd()));
    drop(write);
    let (daemon, _) = listener.accept().unwrap();
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    match refused {
        Ok(()) => assert!(receive(&daemon, &mut buffer).unwrap().fd.is_none()),
        Err(why) => assert_eq!(why.kind(), ErrorKind::PermissionDenied),
    }
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    rank.send(b"a hello", None).unwrap();
    assert_eq!(receive(&daemon, &mut buffer).unwrap().bytes, 7);
}

#[test]
fn a_message_beyond_the_protocol_is_no_message() {
    let (a, b) = Connection::pair().unwrap();
    a.send(&vec![1; MESSAGE_BYTES_MAX + 1], None).unwrap();
    a.send(b"next", None).unwrap();
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    assert_eq!(
        b.recv(&mut buffer).unwrap_err().kind(),
        ErrorKind::InvalidData
    );
    assert_eq!(b.recv(&mut buffer).unwrap().unwrap().bytes, 4);
}

/// A peer that ends with unread data resets the connection; its last messages may be lost, and both
/// cases read as the end.
#[test]
fn a_reset_is_an_end() {
    let (a, b) = Connection::pair().unwrap();
    b.send(b"never read", None).unwrap();
    a.send(b"queued", None).unwrap();
    drop(a);
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let ends = (0..3)
        .map(|_| b.recv(&mut buffer).unwrap())
        .any(|packet| packet.is_none());
    assert!(ends);
}

#[test]
fn a_slow_reader_fills_the_queue_and_blocks_no_sender() {
    let (a, b) = Connection::pair().unwrap();
    let message = vec![7; FRAMES_MAX];
    let full = (0..100_000).find_map(|n| a.send(&message, None).err().map(|e| (n, e)));
    let (sent, error) = full.unwrap();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(!a.wait(Interest::Writable, Duration::ZERO).unwrap());
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    (0..sent).for_each(|_| assert_eq!(b.recv(&mut buffer).unwrap().unwrap().bytes, message.len()));
    assert!(a.wait(Interest::Writable, Duration::from_secs(10)).unwrap());
}

#[test]
fn a_path_that_can_not_be_bound_is_explained() {
    let (dir, path) = folder();
    let long = dir.path().join("x".repeat(120));
    for error in [
        bind_error(&long),
        Connection::connect(&long, soon()).unwrap_err().to_string(),
    ] {
        assert!(
            error.contains("at most 107") && error.contains("shorter"),
            "{error}"
        );
    }
    let error = bind_error(&dir.path().join("no/such/s.sock"));
    assert!(
        error.contains("its folder can't be used") && error.contains("mkdir -p"),
        "{error}"
    );
    fs::write(&path, "precious").unwrap();
    assert!(bind_error(&path).contains("a file that is not a socket has this name"));
    assert_eq!(
        fs::read(&path).unwrap(),
        b"precious",
        "and it is still there"
    );
}

#[test]
fn a_path_of_107_bytes_is_good() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let length = 107 - dir.path().as_os_str().len() - 1;
    let path = dir.path().join("y".repeat(length));
    let _listener = Listener::bind(&path, 0o600).unwrap();
    Connection::connect(&path, soon()).unwrap();
}

#[test]
fn a_second_daemon_is_refused_and_the_first_keeps_its_file() {
    let (_dir, path) = folder();
    let first = Listener::bind(&path, 0o600).unwrap();
    assert!(bind_error(&path).contains("a second daemon on the same socket"));
    Connection::connect(&path, soon()).unwrap();
    drop(first);
    Listener::bind(&path, 0o600).unwrap();
}

#[test]
fn a_stale_file_is_taken_over_and_never_by_two() {
    for round in 0..20 {
        let (_dir, path) = folder();
        leave_stale(&path);
        let refused = Connection::connect(&path, soon()).unwrap_err();
        assert!(matches!(refused, SocketError::NoDaemon { .. }), "{refused}");
        let bind = || Listener::bind(&path, 0o600);
        let (a, b) = std::thread::scope(|s| {
            let (a, b) = (s.spawn(bind), s.spawn(bind));
            (a.join().unwrap(), b.join().unwrap())
        });
        assert_eq!(
            usize::from(a.is_ok()) + usize::from(b.is_ok()),
            1,
            "round {round}: {a:?} {b:?}"
        );
        Connection::connect(&path, soon()).unwrap();
    }
}

/// A daemon that stops late must not remove the socket of its successor.
#[test]
fn an_old_listener_leaves_a_new_file_alone() {
    let (_dir, path) = folder();
    let old = Listener::bind(&path, 0o600).unwrap();
    fs::remove_file(&path).unwrap();
    let _new = Listener::bind(&path, 0o600).unwrap();
    drop(old);
    Connection::connect(&path, soon()).unwrap();
}

#[test]
fn users_are_let_in_by_uid() {
    let peer = |uid| Peer { uid, pid: None };
    assert!(peer(1000).allowed(1000, &[]));
    assert!(!peer(1001).allowed(1000, &[]));
    assert!(peer(1001).allowed(1000, &[7, 1001]));
    assert!(!peer(0).allowed(1000, &[]), "root is not an exception");
    assert!(
        !peer(OVERFLOW_UID).allowed(OVERFLOW_UID, &[OVERFLOW_UID]),
        "it may be anybody"
    );
}

/// The end of a killed process is seen immediately, also through its pidfd where the kernel has one.
#[test]
fn a_killed_peer_is_an_end() {
    let (_dir, path) = folder();
    let listener = Listener::bind(&path, 0o600).unwrap();
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                  s.connect(sys.argv[1])\n\
                  s.send(b'here')\n\
                  s.recv(10)\n";
    let mut command = Command::new("python3");
    let mut child = command
        .args(["-c", script])
        .arg(&path)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = soon();
    let daemon = loop {
        match listener.accept() {
            Ok((connection, _)) => break connection,
            Err(_) if Instant::now() < deadline => std::thread::yield_now(),
            Err(e) => panic!("the child did not connect: {e}"),
        }
    };
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    assert_eq!(receive(&daemon, &mut buffer).unwrap().bytes, 4);
    let pidfd = daemon.peer_pidfd();
    child.kill().unwrap();
    assert!(receive(&daemon, &mut buffer).is_none());
    child.wait().unwrap();
    if let Some(pidfd) = pidfd {
        let mut fds = [rustix::event::PollFd::new(
            &pidfd,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut fds, None).unwrap(), 1);
    }
}
