//! Measurements that Python makes: modules of the installed package, whose report is passed on.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::demo::s3_server::S3Server;
use crate::error::bench_error;
use batchweave_console::CliError;

/// Runs a `module` that measures `calls` in each of the `rounds`, and returns its output: JSON with `json`, else a table.
pub(super) async fn of_calls(
    python: &Path,
    module: &str,
    rounds: u32,
    calls: u32,
    json: bool,
) -> Result<String, CliError> {
    let (rounds, calls) = (rounds.to_string(), calls.to_string());
    let mut words = vec!["--rounds".to_owned(), rounds, "--calls".to_owned(), calls];
    if !json {
        words.push("--text".to_owned());
    }
    report(python, module, &words, &[], json).await
}

/// Starts a `dev-s3` with the latencies of S3 Standard, and returns it with its bucket. Its log is in `folder`.
pub(super) async fn slow_server(
    folder: &Path,
    more: &[&str],
) -> Result<(S3Server, &'static str), CliError> {
    const BUCKET: &str = "bench";
    let this = std::env::current_exe()?;
    let args = [&["--latency", "s3-standard"], more].concat();
    let started = S3Server::start(this, BUCKET, &args, folder.join("dev-s3.log")).await;
    Ok((started.map_err(bench_error)?, BUCKET))
}

/// Runs `module` with `args` and `env`, and returns its output, which is JSON if it is expected to be.
pub(super) async fn report(
    python: &Path,
    module: &str,
    args: &[String],
    env: &[(String, String)],
    json: bool,
) -> Result<String, CliError> {
    let mut command = Command::new(python);
    command.args(["-m", module]).args(args);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    let python = python.display();
    let failed = |why: String| {
        bench_error(format!(
            "{python} -m {module}: {why}; give a Python with the batchweave package: --python PROGRAM"
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
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// Returns a program that stands for Python, in a folder that must stay.
    pub(in super::super) fn program(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, python)
    }

    #[tokio::test]
    async fn a_python_without_the_package_is_named() {
        for (script, why) in [("exit 1", "exit status: 1"), ("echo nothing", "not JSON")] {
            let (_folder, python) = program(script);
            let error = report(&python, "m", &[], &[], true)
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.contains("--python PROGRAM"), "{error}");
        }
    }
}
