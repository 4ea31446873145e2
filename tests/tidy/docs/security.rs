//! docs/security.md names a test for each of its claims, and each of them exists.

use std::collections::BTreeSet;
use std::fs;

use super::protocol::tests;
use super::socket::{quoted, table};
use crate::files::sources;
use crate::{assert_none, root};

/// Test functions in Rust, also those in modules within a file, and in Python.
fn all_tests() -> BTreeSet<String> {
    let mut found = tests();
    for (_, text) in sources(&["py"]) {
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("def "))
            .filter_map(|rest| rest.split_once('(').map(|(name, _)| name.to_owned()));
        found.extend(names.filter(|name| name.starts_with("test_")));
    }
    found
}

#[test]
fn what_the_security_page_claims_is_shown() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let tests = all_tests();
    let rows = table(&page, "| claim | tests |");
    assert!(rows.len() > 10, "the table was not found");
    let mut findings = Vec::new();
    for row in rows {
        let [claim, shown] = row[..] else {
            panic!("{row:?}")
        };
        let named = quoted(shown);
        if named.is_empty() {
            findings.push(format!("{claim}: nothing shows it"));
        }
        let invented = named.iter().filter(|name| !tests.contains(**name));
        findings.extend(invented.map(|name| format!("{claim}: {name} does not exist")));
    }
    assert_none("docs/security.md claims too much", &findings);
}
