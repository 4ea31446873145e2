//! docs/security.md names a test for each of its claims, and each of them exists.

use std::fs;

use super::socket::{bodies, quoted, table};
use crate::{assert_none, root};

#[test]
fn what_the_security_page_claims_is_shown() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let tests = bodies();
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
        let invented = named.iter().filter(|name| !tests.contains_key(**name));
        findings.extend(invented.map(|name| format!("{claim}: {name} does not exist")));
    }
    assert_none("docs/security.md claims too much", &findings);
}
