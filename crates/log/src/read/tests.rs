//! Opening and following a log: snapshots of no use, fast writers, wrong reads, damaged roots.

mod damaged_roots;
mod fast_writers;
mod opening;
mod wrong_reads;
