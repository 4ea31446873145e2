//! Ports for daemons whose address a test must know before they start.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port on this host, outside the range that the system hands out: another program's
/// outgoing connection could take such a port first.
///
/// # Panics
/// When the system provides no socket.
pub fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes started together have neighbouring ids: their ports must not be neighbours.
    let first = (u64::from(std::process::id()) * 61 % 12_000) as u16;
    loop {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (first + turn % 12_000) % 12_000;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            Err(why) => assert_eq!(why.kind(), ErrorKind::AddrInUse, "port {port}"),
        }
    }
}
