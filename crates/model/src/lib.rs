//! An explicit-state model of the protocol: commit and its unknown outcomes, combining by intents,
//! fencing, sealing, attempts against watermark and marks, deletion.
//!
//! Store, network and processes are modelled; what a record means is not: every record is real bytes
//! that go through the product's own `Manifest::fold`, and writers ask its `judge_all`. All orders of
//! all actions within the bounds of a configuration are explored. docs/model.md says what is covered.
#![forbid(unsafe_code)]

pub mod action;
pub mod checker;
pub mod config;
pub mod entries;
pub mod facts;
pub mod fingerprint;
pub mod guard;
pub mod people;
pub mod producers;
pub mod property;
pub mod reclaimer;
pub mod report;
pub mod row;
pub mod signs;
pub mod spec;
pub mod state;
pub mod tables;
pub mod trainers;
pub mod turn;
pub mod views;
pub mod world;

#[cfg(test)]
mod tests;
