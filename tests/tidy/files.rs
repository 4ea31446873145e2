//! Rules on source files: length, headers, `select!`, paths of one machine.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{assert_none, root};

const MAX_LINES: usize = 400;

/// Folders without own sources.
const SKIPPED: [&str; 10] = [
    ".git",
    ".venv",
    "target",
    "dist",
    "__pycache__",
    "demo-out",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "node_modules",
];

fn collect(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            if !SKIPPED.contains(&entry.file_name().to_str().unwrap()) {
                collect(&path, endings, found);
            }
        } else if path
            .extension()
            .is_some_and(|ending| endings.contains(&ending.to_str().unwrap()))
        {
            found.push(path);
        }
    }
}

/// All files with one of the endings: path below the root, and text.
pub(crate) fn sources(endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root(), endings, &mut found);
    found.sort();
    assert!(
        !found.is_empty(),
        "no files found below {}",
        root().display()
    );
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found
        .iter()
        .map(|path| (name(path), fs::read_to_string(path).unwrap()))
        .collect()
}

/// Whether the file is of a crate, but not of its tests.
pub(crate) fn of_a_crate(name: &str) -> bool {
    let proving = [
        "tests/fuzz/",
        "tests/model/",
        "tests/sim/",
        "tests/testkit/",
    ];
    let below = proving.iter().find_map(|folder| name.strip_prefix(folder));
    let own = below.or_else(|| name.strip_prefix("crates/").map(|_| name));
    own.is_some_and(|path| !path.contains("/tests") && !path.starts_with("tests"))
}

#[test]
fn files_are_short() {
    let long: Vec<_> = sources(&["rs", "py"])
        .iter()
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(name, lines)| format!("{name}: {lines} lines, at most {MAX_LINES}"))
        .collect();
    assert_none("a file is one idea; split these", &long);
}

#[test]
fn rust_files_begin_with_a_header() {
    let without: Vec<_> = sources(&["rs"])
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(name, _)| name)
        .collect();
    assert_none(
        "each .rs file begins with a `//!` line that says what it is for",
        &without,
    );
}

/// Without `biased` the branch is drawn at random, and a simulation cannot be repeated.
#[test]
fn select_is_biased() {
    let macro_call = concat!("select", "! {");
    let mut findings = Vec::new();
    for (name, text) in sources(&["rs"]) {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let code = !line.starts_with("//");
            if code && line.ends_with(macro_call) && lines.get(at + 1) != Some(&"biased;") {
                findings.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert_none("the first line of a select is `biased;`", &findings);
}

#[test]
fn no_paths_of_one_machine() {
    let homes = [
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
    ];
    let endings = [
        "rs", "py", "toml", "md", "yaml", "yml", "json", "sh", "service", "txt",
    ];
    let mut findings = Vec::new();
    for (name, text) in sources(&endings) {
        for (at, line) in text.lines().enumerate() {
            let starts = |path: &str| {
                line.match_indices(path).any(|(found, _)| {
                    let before = line[..found].chars().next_back();
                    before.is_none_or(|before| {
                        !before.is_alphanumeric() && !"./~}_-:".contains(before)
                    })
                })
            };
            if homes.into_iter().any(starts) {
                findings.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert_none("paths that exist on one machine only", &findings);
}
