//! Formats, rules and planning of BatchWeave: pure functions and state machines.
//!
//! This crate never does I/O, never reads a clock and never draws a random number.
#![forbid(unsafe_code)]

pub mod balance;
pub mod commit_policy;
pub mod crc;
pub mod cursor;
pub mod drive;
pub mod error;
pub mod fixtures;
pub mod flow_control;
pub mod guards;
pub mod ids;
pub mod inbox;
pub mod inputs;
pub mod intent;
pub mod json;
pub mod keys;
pub mod limits;
pub mod manifest;
pub mod mesh;
pub mod order;
pub mod polling;
pub mod proof;
pub mod provenance;
pub mod retention;
pub mod stream;
pub mod tgb;
pub mod tokenizer;
pub mod values;
