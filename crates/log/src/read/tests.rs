//! Opening and following a log: bundles, snapshots of no use, fast writers, wrong reads, damaged roots.

mod bundles;
mod damaged_roots;
mod fast_writers;
mod opening;
mod wrong_reads;
