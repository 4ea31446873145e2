//! The `batchweave-consumer` binary.
fn main() {}
