//! Rust client of the consumer daemon's socket.
#![forbid(unsafe_code)]
