//! docs/socket.md lists the causes of the code, each with a test that shows it; every test that the page
//! names exists.

use std::collections::BTreeMap;
use std::fs;

use super::protocol::tests;
use crate::files::sources;
use crate::{assert_none, root};

const PAGE: &str = "docs/socket.md";
const CODE: &str = "crates/wire/src/cause.rs";

/// A cause: its number, its name, the name of its variant.
#[derive(Debug, PartialEq, Eq)]
struct Cause {
    number: u32,
    name: String,
    variant: String,
}

/// Parses lines such as `Producing = 1 "producing",`.
fn causes(code: &str) -> Vec<Cause> {
    let cause = |line: &str| {
        let (variant, rest) = line.trim().split_once(" = ")?;
        let (number, name) = rest.split_once(' ')?;
        let name = name.strip_prefix('"')?.strip_suffix("\",")?;
        Some(Cause {
            number: number.parse().ok()?,
            name: name.to_owned(),
            variant: variant.to_owned(),
        })
    };
    code.lines().filter_map(cause).collect()
}

/// Returns the texts between backticks.
pub(super) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the cells of each row of the table whose head begins with `head`.
pub(super) fn table<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with(head))
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    let cells = |row: &'a str| {
        let row = row.trim_matches(['|', ' ']);
        row.split(" | ").map(str::trim).collect()
    };
    rows.map(cells).collect()
}

/// Test functions in Rust and Python by name: their text to the next function.
fn bodies() -> BTreeMap<String, String> {
    let known = tests();
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (_, text) in sources(&["rs", "py"]) {
        let mut now: Option<String> = None;
        for line in text.lines() {
            if let Some(name) = function(line) {
                let is_test = known.contains(name) || name.starts_with("test_");
                now = is_test.then(|| name.to_owned());
            }
            if let Some(name) = &now {
                let body = found.entry(name.clone()).or_default();
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    found
}

/// The name of a function that begins at this line.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    let rest = line
        .strip_prefix("fn ")
        .or_else(|| line.strip_prefix("def "))?;
    rest.split_once('(').map(|(name, _)| name)
}

#[test]
fn every_cause_of_a_wait_is_on_the_socket_page_with_a_test_that_shows_it() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let known = causes(&fs::read_to_string(root().join(CODE)).unwrap());
    assert!(known.len() >= 10, "{CODE}: {known:?}");
    let bodies = bodies();
    let rows = table(&page, "| cause | name |");
    let mut findings = Vec::new();
    for cause in &known {
        let number = cause.number.to_string();
        let name = format!("`{}`", cause.name);
        let Some(row) = rows.iter().find(|row| row[..2] == [&number, &name]) else {
            findings.push(format!("{number} {name} has no row"));
            continue;
        };
        let shows = |test: &&str| {
            let body = bodies.get(*test).map_or("", String::as_str);
            body.contains(&cause.name) || body.contains(&format!("::{}", cause.variant))
        };
        let silent = quoted(row[3]).into_iter().filter(|test| !shows(test));
        findings.extend(silent.map(|test| format!("{name}: {test} does not mention it")));
        if quoted(row[3]).is_empty() {
            findings.push(format!("{name}: no test shows it"));
        }
    }
    if rows.len() != known.len() {
        findings.push(format!("{} rows for {} causes", rows.len(), known.len()));
    }
    assert_none("docs/socket.md and the causes of waits disagree", &findings);
}

#[test]
fn what_peers_do_wrong_is_shown_by_tests_that_exist() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let bodies = bodies();
    let rows = table(&page, "| fault | effect | test |");
    assert!(rows.len() > 10, "the table was not found");
    let mut findings = Vec::new();
    for row in rows {
        let named = quoted(row.last().unwrap());
        if named.is_empty() {
            findings.push(format!("{}: no test shows it", row[0]));
        }
        let invented = named.iter().filter(|test| !bodies.contains_key(**test));
        findings.extend(invented.map(|test| format!("{}: {test} does not exist", row[0])));
    }
    assert_none("docs/socket.md names tests that are not there", &findings);
}

#[test]
fn tables_and_causes_are_found() {
    let page = "x\n| a | b |\n|---|---|\n| 1 | `c`, `d` |\n| 2 | e |\n\n| 3 | f |\n";
    let rows = table(page, "| a |");
    assert_eq!(rows, [["1", "`c`, `d`"], ["2", "e"]]);
    assert_eq!(quoted(rows[0][1]), ["c", "d"]);
    let expected = Cause {
        number: 4,
        name: "arena_full".to_owned(),
        variant: "ArenaFull".to_owned(),
    };
    assert_eq!(
        causes("    /// Full.\n    ArenaFull = 4 \"arena_full\",\n"),
        [expected]
    );
    assert_eq!(function("async fn a_b() {"), Some("a_b"));
    assert_eq!(function("def test_c(x: int) -> None:"), Some("test_c"));
}
