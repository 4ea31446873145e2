//! A simulated world of producers, readers and a store with faults, run until all input is committed.
//!
//! - `run`: starts all actors of a plan and collects the evidence; `shared`: the state that they share;
//! - `producer`, `supervisor`, `reader`: the programs, and the service manager that restarts producers;
//! - `operator`: a person who seals, retires and changes the mixture; `faulty`: a program that writes
//!   invalid records; `person`: administrative entries with retries;
//! - `forward`: checks that each open log folds forward; `content`: the content of every TGB.

pub(crate) mod content;
pub(crate) mod faulty;
pub(crate) mod forward;
pub(crate) mod operator;
pub(crate) mod person;
mod producer;
mod reader;
mod run;
pub(crate) mod shared;
mod supervisor;

pub use run::run;
