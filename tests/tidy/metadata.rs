//! Metadata from cargo: the workspace and all its packages.

use std::process::Command;

use serde_json::Value;

/// `cargo metadata` for this machine's platform: exactly the packages that a build fetched.
pub(crate) fn load() -> Value {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(rustc.stdout).unwrap();
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--offline",
            "--locked",
            "--filter-platform",
            host,
        ])
        .current_dir(crate::root())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {message}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

pub(crate) fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// The packages of this workspace.
pub(crate) fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    list(metadata, "packages").filter(|package| package["source"].is_null())
}
