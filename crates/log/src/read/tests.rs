//! Opening and following a log: bundles, forged copies, snapshots of no use, fast writers, wrong reads, bytes of
//! other objects, damaged roots.

mod bundles;
mod damaged_roots;
mod fast_writers;
mod forged_bundles;
mod forged_copies;
mod misfits;
mod opening;
mod wrong_reads;
