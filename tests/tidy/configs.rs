//! The shipped configuration files are valid TOML, and both Python packages agree. Each daemon's own tests compare
//! the values with its defaults.

use std::fs;

use crate::{assert_none, root};

#[test]
fn config_files_parse() {
    let mut findings = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(root().join("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            count += 1;
            if let Err(error) = fs::read_to_string(&path).unwrap().parse::<toml::Table>() {
                findings.push(format!("{}: {error}", path.display()));
            }
        }
    }
    assert!(count > 0, "config/ holds no .toml files");
    assert_none("configuration files that do not parse", &findings);
}

/// The `[project]` table of a manifest of Python, without the keys that differ by intent.
fn python_project(path: &str) -> toml::Table {
    let manifest: toml::Table = fs::read_to_string(root().join(path))
        .unwrap()
        .parse()
        .unwrap();
    let mut project = manifest["project"].as_table().unwrap().clone();
    project.retain(|key, _| !["readme", "dynamic"].contains(&key));
    project
}

/// The wheel with the programs takes its version from the workspace.
#[test]
fn both_python_packages_have_the_same_metadata() {
    let cargo: toml::Table = fs::read_to_string(root().join("Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let version = cargo["workspace"]["package"]["version"].clone();
    let mut with_programs = python_project("pyproject.toml");
    with_programs.insert("version".to_owned(), version);
    assert_eq!(with_programs, python_project("python/pyproject.toml"));
}
