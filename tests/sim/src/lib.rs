//! Deterministic simulation of the commit protocol: the real core and log code over a simulated
//! store, on one thread, in virtual time. The same seed gives the same trace.
//!
//! - `plan`: the content of a world, drawn from a seed;
//! - `store`: the object store, its faults, and slow or lying links to it;
//! - `actor`, `clock`, `time`: processes that are slow, freeze or die, and their clocks;
//! - `world`: producers and readers; `lifecycle`: jobs, attempts, marks, reclaimers and people;
//! - `evidence`, `trace`: the record of a run; `check`: the rules that each run must keep;
//! - `policy`, `interval`: the policies of producers; `load`: many producers at given rates: latencies, attempts and requests;
//! - `follow`: thousands of nodes that follow one log;
//! - `story`, `shrink`: a failing run in words, and made small.
//!
//! This crate never opens a socket or a file of a store, and never reads the system's clock.
#![forbid(unsafe_code)]

pub mod actor;
pub mod check;
pub mod clock;
pub mod command;
pub mod draw;
pub mod evidence;
pub mod follow;
mod interval;
pub mod lifecycle;
pub mod load;
pub mod plan;
pub mod policy;
pub mod shrink;
pub mod store;
pub mod story;
pub mod time;
pub mod trace;
pub mod world;
