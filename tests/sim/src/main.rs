//! `batchweave-sim`: see `batchweave-sim --help`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    batchweave_sim::command::main()
}
