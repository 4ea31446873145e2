//! An explicit-state model of the protocol: commit and its unknown outcomes, combining by intents,
//! fencing, sealing, attempts against watermark and marks, deletion.
//!
//! Store, network and processes are modelled; the meaning of a record is not: every record is real
//! bytes that go through the product's own `Manifest::fold`, and writers call its validation. All
//! orders of all actions within the bounds of a configuration are explored. docs/model.md describes the
//! coverage.
#![forbid(unsafe_code)]

pub mod action;
pub mod bundles;
pub mod checker;
pub mod config;
pub mod entries;
pub mod facts;
pub mod fingerprint;
pub mod guard;
pub mod inline_list;
pub mod job_objects;
pub mod numbers;
pub mod people;
pub mod producers;
pub mod property;
pub mod reclaimer;
pub mod report;
pub mod spec;
pub mod state;
pub mod tables;
pub mod trainers;
pub mod turn;
pub mod views;
pub mod world;

#[cfg(test)]
mod stages;
#[cfg(test)]
mod tests;
