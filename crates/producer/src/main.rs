//! The `batchweave-producer` binary.
fn main() {}
