//! The `batchweave` binary.
fn main() {}
