//! The `batchweave-producer` binary.
#![forbid(unsafe_code)]

fn main() -> batchweave_daemon::Exit {
    batchweave_producer::main()
}
