//! An S3 server for tests, demos and laptops, with configurable latency and faults.
//!
//! The HTTP front (`front`) delays requests and injects faults; the `s3s` crate implements the S3
//! protocol and checks signatures; `api` answers the operations from `storage`.
//!
//! Invariants:
//! - A conditional put is decided and made visible under one lock: of any number of racers with
//!   `If-None-Match: *` on an absent key exactly one succeeds.
//! - An object is replaced as a whole; a running read continues with the old bytes.
//! - The order of random draws depends only on the seed and the order of requests.
//!
//! This crate does not keep data safe: it syncs nothing to the disk. It is not for production.
#![forbid(unsafe_code)]

mod api;
mod checksum;
mod command;
mod error;
mod faults;
mod front;
mod journal;
mod latency;
mod link;
mod op;
mod policy;
mod server;
mod stats;
mod storage;
mod wrong_reads;

pub use command::{DevS3Args, run};
pub use error::Error;
pub use faults::{Fault, FaultSpec, Faults, Injection};
pub use journal::PutRecord;
pub use latency::LatencyProfile;
pub use op::Op;
pub use policy::PolicyArg;
pub use server::{Options, Server};
pub use stats::Stats;
