//! `bench handover`: the time that a rank spends per batch. Ranks are Python, so Python measures: the
//! installed package contains the measurement and the process that hands over frames.

use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use serde_json::Value;
use tokio::process::Command;

use crate::error::bench_error;
use batchweave_console::CliError;

const MODULE: &str = "batchweave.bench.handover";

#[derive(Debug, Clone, Args)]
pub(crate) struct HandoverArgs {
    /// Python with the batchweave package; with torch it also measures a DataLoader worker
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Number of rounds; each figure is their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls of next() in each round
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    calls: u32,
}

/// Runs the measurement and returns its output: one JSON object with `json`, else a table.
pub(crate) async fn measure(args: &HandoverArgs, json: bool) -> Result<String, CliError> {
    let mut command = Command::new(&args.python);
    command.args(["-m", MODULE, "--rounds", &args.rounds.to_string()]);
    command.args(["--calls", &args.calls.to_string()]);
    if !json {
        command.arg("--text");
    }
    let python = args.python.display();
    let failed = |why: String| {
        bench_error(format!(
            "{python} -m {MODULE}: {why}; give a Python with the batchweave package: --python PROGRAM"
        ))
    };
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let output = child
        .wait_with_output()
        .await
        .map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if json {
        serde_json::from_str::<Value>(&text).map_err(|e| failed(format!("not JSON: {e}")))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(script: &str) -> (tempfile::TempDir, HandoverArgs) {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let args = HandoverArgs {
            python,
            rounds: 2,
            calls: 300,
        };
        (folder, args)
    }

    #[tokio::test]
    async fn the_measurement_is_started_and_its_report_passed_on() {
        let (_folder, args) = program(r#"echo "{\"arguments\": \"$*\"}""#);
        let json = measure(&args, true).await.unwrap();
        let wanted = "{\"arguments\": \"-m batchweave.bench.handover --rounds 2 --calls 300\"}\n";
        assert_eq!(json, wanted);
        assert!(measure(&args, false).await.unwrap().contains("--text"));
    }

    #[tokio::test]
    async fn a_python_without_the_package_is_named() {
        let (_folder, args) = program("exit 1");
        let error = measure(&args, true).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 1"), "{error}");
        assert!(error.contains("--python PROGRAM"), "{error}");
        let (_folder, args) = program("echo nothing");
        let error = measure(&args, true).await.unwrap_err().to_string();
        assert!(error.contains("not JSON"), "{error}");
    }
}
