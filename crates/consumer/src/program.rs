//! `batchweave-consumer --config F`: the consumer daemon of one node.

use batchweave_daemon::{Exit, Failure, Program};

use crate::config::ConsumerConfig;
use crate::{check, run};

const PROGRAM: Program = Program {
    name: "batchweave-consumer",
    version: env!("CARGO_PKG_VERSION"),
    about: "Serves the training ranks of this node: follows a stream's log, fetches their slices ahead of use \
into shared memory, and hands them out over a Unix socket.",
    exit_codes: "Exit codes: 0 stopped on request, 1 failure, 64 configuration, socket or arena, \
69 store unavailable, 70 a fault of the program, 73 store or stream refused, 76 stored objects break the protocol; \
137 (killed) usually means that a memory limit was hit.",
};

/// Runs the daemon with this process's command line and returns its exit code.
pub fn main() -> Exit {
    PROGRAM.main(
        |config: &ConsumerConfig| &config.log,
        check,
        async |config, stop| {
            let ended = run(config, stop).await;
            ended.map_err(|why| Failure::new(&why, why.exit()))
        },
    )
}
