//! Shared memory segments and the socket between daemon and ranks; the only crate with unsafe code.
#![allow(unsafe_code)]
