//! The real binary on streams in temporary folders: its output and its refusals.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod admin;
mod damage;
mod decode;
mod decode_file;
mod delete;
mod doctor;
mod drive;
mod jobs;
mod proof;
mod quickstart;
mod reading;
mod reclaim;
mod refusals;
mod runs;
mod s3;
mod ui;
mod verify;
mod world;
