//! The object store contract and its file, memory and S3 implementations.
//!
//! This crate never learns what the keys mean: names live in `batchweave-core`.
#![forbid(unsafe_code)]

mod contract;
mod error;
pub mod memory;

pub use contract::{Chunks, Create, ListPage, ObjectMeta, Store};
pub use error::{Effect, ErrorKind, Op, StoreError};
