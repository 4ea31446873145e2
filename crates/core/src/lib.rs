//! Formats, rules and planning of BatchWeave: pure functions and state machines.
//!
//! This crate never does I/O, never reads a clock and never draws a random number.
#![forbid(unsafe_code)]

pub mod commit;
pub mod crc;
pub mod cursor;
pub mod error;
pub mod follow;
pub mod ids;
pub mod inputs;
pub mod intent;
pub mod json;
pub mod keys;
pub mod lifecycle;
pub mod limits;
pub mod manifest;
pub mod mesh;
pub mod mutation;
pub mod provenance;
pub mod samples;
pub mod stream;
pub mod tgb;
