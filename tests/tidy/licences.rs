//! Licences of all packages that the programs are built from.

use crate::assert_none;
use crate::metadata::{list, load, text};

/// Permissive licences that ask for no more than a notice, one per line; tools/release reads the same list.
const ALLOWED: &str = include_str!("../../tools/release/allowed-licences.txt");

/// Whether an SPDX expression can be met by allowed licences. `AND` binds tighter than `OR`; the old
/// `MIT/Apache-2.0` means `OR`.
fn allowed(expression: &str) -> bool {
    let text = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words: Vec<&str> = text.split_whitespace().rev().collect();
    any_of(&mut words) && words.is_empty()
}

fn any_of(words: &mut Vec<&str>) -> bool {
    let mut met = all_of(words);
    while words.pop_if(|word| *word == "OR").is_some() {
        met |= all_of(words);
    }
    met
}

fn all_of(words: &mut Vec<&str>) -> bool {
    let mut met = one(words);
    while words.pop_if(|word| *word == "AND").is_some() {
        met &= one(words);
    }
    met
}

fn one(words: &mut Vec<&str>) -> bool {
    let Some(first) = words.pop() else {
        return false;
    };
    if first == "(" {
        let met = any_of(words);
        return words.pop() == Some(")") && met;
    }
    let mut licence = first.to_owned();
    if words.pop_if(|word| *word == "WITH").is_some() {
        licence = format!("{licence} WITH {}", words.pop().unwrap_or(""));
    }
    ALLOWED.lines().any(|allowed| allowed == licence)
}

#[test]
fn expressions_are_understood() {
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(MIT OR GPL-3.0) AND ISC",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-2.0 AND MIT OR ISC",
    ] {
        assert!(allowed(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR ISC) AND GPL-3.0",
        "MIT WITH X",
        "MIT ISC",
        "(MIT",
    ] {
        assert!(!allowed(bad), "{bad}");
    }
}

#[test]
fn all_licences_are_permissive() {
    let metadata = load();
    let findings: Vec<_> = list(&metadata, "packages")
        .filter(|package| !allowed(text(package, "license")))
        .map(|package| {
            let (name, version) = (text(package, "name"), text(package, "version"));
            format!("{name} {version}: licence `{}`", text(package, "license"))
        })
        .collect();
    assert_none(
        "packages whose licence is not on the list of allowed ones",
        &findings,
    );
}
