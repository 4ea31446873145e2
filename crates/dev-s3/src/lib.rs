//! An S3 server for tests, demos and laptops, with latency and faults to order.
//!
//! The HTTP front (`front`) decides how long a request takes and whether it fails; the `s3s` crate
//! speaks the S3 protocol and checks signatures; `api` answers the operations from `storage`.
//!
//! Invariants:
//! - A conditional put is decided and made visible under one lock: of any number of racers with
//!   `If-None-Match: *` on an absent key exactly one succeeds.
//! - An object is replaced as a whole; a reader that has begun goes on with the old bytes.
//! - The order of random draws depends on the seed and the order of requests alone.
//!
//! This crate never keeps data safe: nothing is synced to the disk. It is not for production.
#![forbid(unsafe_code)]

mod api;
mod checksum;
mod command;
mod error;
mod faults;
mod front;
mod journal;
mod latency;
mod lies;
mod link;
mod op;
mod policy;
mod server;
mod stats;
mod storage;

pub use command::{DevS3Args, run};
pub use error::Error;
pub use faults::{Fault, FaultSpec, Faults, Injection};
pub use journal::Deed;
pub use latency::LatencyProfile;
pub use op::Op;
pub use policy::PolicyArg;
pub use server::{Options, Server};
pub use stats::Stats;
