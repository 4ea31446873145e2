//! Opening and following a log: bundles, snapshots of no use, fast writers, wrong reads, bytes of other objects,
//! damaged roots.

mod bundles;
mod damaged_roots;
mod fast_writers;
mod misfits;
mod opening;
mod wrong_reads;
