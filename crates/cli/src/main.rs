//! The `batchweave` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    batchweave_cli::run(std::env::args_os().collect())
        .await
        .into()
}
