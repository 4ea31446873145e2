//! Deterministic simulation of the commit protocol: the real core and log code over a simulated
//! store, on one thread, in virtual time. The same seed gives the same trace.
//!
//! - `store`, `handle`, `fate`, `profile`, `throttle`: the object store and its faults;
//! - `link`: what lies between an actor and the store: slow bytes, reads that lie;
//! - `actor`, `clock`, `time`: processes that can be slow, freeze or die, and their clocks;
//! - `world`: producers and readers drawn from a seed; `check`: what must hold after each run;
//! - `life`: jobs, attempts, marks, reclaimers and people, in lifecycle worlds;
//! - `load`: many producers at given rates; latencies, attempts and requests;
//! - `follow`: thousands of nodes that follow one log;
//! - `story`, `shrink`: a failing run in words, and made small.
//!
//! This crate never opens a socket or a file of a store, and never reads the system's clock.
#![forbid(unsafe_code)]

pub mod actor;
mod busy;
pub mod check;
pub mod clock;
pub mod command;
pub mod draw;
pub mod fate;
pub mod follow;
mod handle;
pub mod life;
pub mod link;
pub mod load;
pub mod policy;
pub mod profile;
pub mod shrink;
pub mod store;
pub mod story;
mod throttle;
pub mod time;
pub mod trace;
pub mod world;
