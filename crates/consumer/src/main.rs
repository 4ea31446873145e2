//! The `batchweave-consumer` binary.
#![forbid(unsafe_code)]

fn main() -> batchweave_daemon::Exit {
    batchweave_consumer::main()
}
