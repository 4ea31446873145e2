//! Rules on crates: what the core may use, where unsafe may be, and a reason for every dependency.

use std::collections::BTreeSet;
use std::fs;

use crate::metadata::{list, load, members, text};
use crate::{assert_none, root};

/// The core is pure: no runtime, no store, no clock. Think twice before you add a line.
const CORE: [&str; 10] = [
    "base64",
    "bytes",
    "crc-fast",
    "flate2",
    "rpds",
    "safetensors",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
];

/// Only here memory is shared with other processes.
const MAY_BE_UNSAFE: [&str; 1] = ["batchweave-arena"];

#[test]
fn the_core_stays_pure() {
    let metadata = load();
    let core = members(&metadata)
        .find(|package| text(package, "name") == "batchweave-core")
        .unwrap();
    let used: BTreeSet<_> = list(core, "dependencies")
        .filter(|dependency| dependency["kind"].is_null())
        .map(|dependency| text(dependency, "name"))
        .collect();
    assert_eq!(
        used,
        BTreeSet::from(CORE),
        "dependencies of batchweave-core"
    );
}

#[test]
fn unsafe_is_forbidden_outside_the_arena() {
    let metadata = load();
    let mut findings = Vec::new();
    for package in
        members(&metadata).filter(|package| !MAY_BE_UNSAFE.contains(&text(package, "name")))
    {
        for target in list(package, "targets") {
            let path = text(target, "src_path");
            if !fs::read_to_string(path)
                .unwrap()
                .contains("#![forbid(unsafe_code)]")
            {
                findings.push(path.to_owned());
            }
        }
    }
    assert_none("each crate root says `#![forbid(unsafe_code)]`", &findings);
}

/// The names in the first column of the tables of docs/dependencies.md.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(name, reason)| {
        assert!(
            reason.len() > 10,
            "docs/dependencies.md: {name} has no reason"
        );
        name.to_owned()
    })
    .collect()
}

fn python_requirements() -> BTreeSet<String> {
    let read = |kind| {
        let path = format!("python/requirements-{kind}.txt");
        fs::read_to_string(root().join(path)).unwrap()
    };
    let lines = read("dev") + &read("frameworks");
    let wanted = lines
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    wanted
        .map(|line| {
            line.split(['=', '>', '<', ' ', ';', '['])
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[test]
fn every_dependency_has_its_reason() {
    let metadata = load();
    let external = members(&metadata)
        .flat_map(|package| list(package, "dependencies"))
        .filter(|dependency| !dependency["source"].is_null())
        .map(|dependency| text(dependency, "name").to_owned());
    let used: BTreeSet<_> = external.chain(python_requirements()).collect();
    let documented = documented();
    let missing: Vec<_> = used.difference(&documented).cloned().collect();
    assert_none(
        "dependencies without a line in docs/dependencies.md",
        &missing,
    );
    let stale: Vec<_> = documented.difference(&used).cloned().collect();
    assert_none(
        "lines of docs/dependencies.md whose dependency is gone",
        &stale,
    );
}

/// A version in two places drifts apart.
#[test]
fn versions_stand_in_the_workspace_manifest_alone() {
    let mut findings = Vec::new();
    for package in members(&load()) {
        let path = text(package, "manifest_path");
        let manifest: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, value) in manifest
                .get(section)
                .and_then(toml::Value::as_table)
                .into_iter()
                .flatten()
            {
                if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                    findings.push(format!("{path}: {name}"));
                }
            }
        }
    }
    assert_none("write `NAME.workspace = true`", &findings);
}
