//! docs/architecture.md lists the dependencies between our crates as `Cargo.toml` has them, and the files that
//! the pages name exist.

use std::collections::BTreeMap;
use std::fs;

use super::pages;
use super::socket::{quoted, table};
use crate::metadata::{list, load, members, text};
use crate::{assert_none, root};

const OURS: &str = "batchweave-";

/// The dependencies of each crate, but this one, on others of the workspace, in order.
fn edges() -> BTreeMap<String, Vec<String>> {
    let metadata = load();
    let other = |package: &&serde_json::Value| text(package, "name") != "batchweave-tests";
    let edges = members(&metadata).filter(other).map(|package| {
        let mut needed: Vec<_> = list(package, "dependencies")
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| text(dependency, "name").strip_prefix(OURS))
            .map(str::to_owned)
            .collect();
        needed.sort();
        let name = text(package, "name");
        (name.strip_prefix(OURS).unwrap_or(name).to_owned(), needed)
    });
    edges.collect()
}

#[test]
fn the_table_of_crates_is_that_of_the_manifests() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows = table(&page, "| crate | content | depends on |");
    let listed: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), row[2].to_owned()))
        .collect();
    let shown = |needed: Vec<String>| match &needed[..] {
        [] => "-".to_owned(),
        some => some.join(", "),
    };
    let expected: BTreeMap<_, _> = edges().into_iter().map(|(c, n)| (c, shown(n))).collect();
    assert!(expected.len() > 10, "the crates were not found");
    assert_eq!(listed, expected, "docs/architecture.md and Cargo.toml");
}

/// Whether a quoted text is a source path: below the root, or below `crates/`.
fn is_source(quote: &str) -> bool {
    let path_only = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    quote.contains("/src/") && quote.chars().all(path_only)
}

#[test]
fn sources_that_the_pages_name_exist() {
    let mut findings = Vec::new();
    let mut count = 0;
    for page in pages() {
        for path in quoted(&page.text).into_iter().filter(|q| is_source(q)) {
            count += 1;
            let places = [root().join(path), root().join("crates").join(path)];
            if !places.iter().any(|place| place.exists()) {
                findings.push(format!("{}: {path}", page.name));
            }
        }
    }
    assert!(count > 20, "only {count} paths were found");
    assert_none("source files that do not exist", &findings);
}

#[test]
fn source_paths_are_told_from_other_text() {
    assert!(is_source("core/src/manifest/"));
    assert!(is_source("tests/model/src/views.rs"));
    for other in ["src/x y.rs", "core::manifest", "wire/src/*", "docs/cli.md"] {
        assert!(!is_source(other), "{other}");
    }
}
