//! The Unix socket: accepting ranks, admitting them, and serving each until it disconnects.
//!
//! - `accept` owns the listening socket, `pending` holds ranks that connect before the daemon can serve;
//! - `connection` is one socket, `handshake` reads and answers its hello, `session` serves it after that;
//! - `marks` stores and answers the checkpoint marks of a session;
//! - `simulated` is the socket of a simulated rank.

pub(crate) mod accept;
pub(crate) mod connection;
mod handshake;
mod marks;
pub(crate) mod pending;
pub(crate) mod session;
pub(crate) mod simulated;
