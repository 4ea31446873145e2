//! The manifest over a store: open, follow, commit, snapshots, fencing.
#![forbid(unsafe_code)]
