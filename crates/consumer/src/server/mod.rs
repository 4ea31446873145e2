//! The Unix socket: accepting ranks, admitting them, and talking to each until it disconnects.
//!
//! - `accept` owns the listening socket, `early` holds ranks that connect before the daemon can serve;
//! - `connection` is one socket, `handshake` reads and answers its hello, `session` serves it after that.

pub(crate) mod accept;
pub(crate) mod connection;
pub(crate) mod early;
pub(crate) mod handshake;
pub(crate) mod session;
