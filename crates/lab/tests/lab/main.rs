//! The real binary: its measurements on small inputs, and its S3 server.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod dev_s3;
mod producing;

use std::process::{Command, Output};

/// Returns the binary, without settings from the environment of these tests.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchweave-lab"));
    command.args(args);
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("BATCHWEAVE_") || name.starts_with("AWS_") || name == "RUST_LOG" {
            command.env_remove(&variable);
        }
    }
    command
}

/// Runs a verb with `--json`, which must succeed, and returns what it prints.
#[track_caller]
fn json(args: &[&str]) -> serde_json::Value {
    let Output {
        status,
        stdout,
        stderr,
    } = command(args).arg("--json").output().unwrap();
    assert!(
        status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&stderr)
    );
    serde_json::from_slice(&stdout).unwrap()
}
