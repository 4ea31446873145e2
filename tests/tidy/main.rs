//! House rules as tests.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a panic is how a test reports

mod configs;
mod dependencies;
mod docs;
mod files;
mod licences;
mod metadata;
mod processors;
mod targets;
mod terms;
mod words;

use std::path::PathBuf;

/// The workspace's root folder.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Fails with all findings at once, so that one run is enough to mend them.
fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
