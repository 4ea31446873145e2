//! Shared memory segments and the socket between daemon and ranks; the only crate with unsafe code.
//!
//! - [`wire`]: the messages, pure and safe (docs/socket.md).
#![allow(unsafe_code)]

pub mod wire;
