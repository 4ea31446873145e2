//! docs/laws.md names the checks of each law of docs/protocol.md and of each pitfall: each test, check, guard
//! and mutation that it names exists, and no row is without one.

use std::collections::BTreeSet;
use std::fs;

use crate::files::sources;
use crate::{assert_none, root};

/// Pitfalls that the page must answer.
const PITFALLS: u32 = 18;

/// The kinds of checks that a row's last column names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Test,
    Sim,
    Model,
    Mutation,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    claims: Vec<(Kind, String)>,
}

/// Rows of the tables of laws and pitfalls: the first cell is `L` or `P` and a number.
fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("| "));
    lines
        .filter_map(|line| {
            let cells: Vec<_> = line.trim_end().trim_end_matches('|').split('|').collect();
            let (name, last) = (cells.first()?.trim(), cells.last()?);
            let number = name.strip_prefix(['L', 'P'])?;
            number.parse::<u32>().ok()?;
            Some(Row {
                name: name.to_owned(),
                claims: claims(last),
            })
        })
        .collect()
}

/// The names between backticks: tests, and after `sim`, `model` and `mutation` their checks, up to the
/// next semicolon or full stop.
fn claims(cell: &str) -> Vec<(Kind, String)> {
    let mut kind = Kind::Test;
    let mut found = Vec::new();
    for (at, piece) in cell.split('`').enumerate() {
        if at % 2 == 1 {
            // Code in prose, as `data/` or `Log::append`, is none.
            if !piece.contains(['/', ':']) {
                found.push((kind, piece.to_owned()));
            }
            continue;
        }
        if piece.contains([';', '.']) {
            kind = Kind::Test;
        }
        kind = match piece.split_whitespace().last() {
            Some("sim") => Kind::Sim,
            Some("model") => Kind::Model,
            Some("mutation") => Kind::Mutation,
            _ => kind,
        };
    }
    found
}

/// The names of a page's rows.
fn rows_named(page: &str) -> BTreeSet<String> {
    rows(page).into_iter().map(|row| row.name).collect()
}

/// Turns `read-exists` into `ReadExists`.
fn variant(guard: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).collect::<String>()
    };
    guard.split('-').map(capital).collect()
}

/// The functions in files that hold tests.
pub(super) fn tests() -> BTreeSet<String> {
    let texts = sources(&["rs"])
        .into_iter()
        .map(|(_, text)| text)
        .filter(|text| text.contains("test]") || text.contains("::test("));
    let name = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("async ").unwrap_or(line);
        let (name, _) = rest.strip_prefix("fn ")?.split_once('(')?;
        Some(name.to_owned())
    };
    texts
        .flat_map(|text| text.lines().filter_map(name).collect::<Vec<_>>())
        .collect()
}

#[test]
fn each_law_and_pitfall_is_checked() {
    let page = fs::read_to_string(root().join("docs/laws.md")).unwrap();
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let guards = read("tests/model/src/guard.rs");
    let mutations = read("crates/core/src/guards.rs");
    let sim: String = sources(&["rs"])
        .into_iter()
        .filter(|(name, _)| name.starts_with("tests/sim/src/"))
        .map(|(_, text)| text)
        .collect();
    let tests = tests();
    let exists = |(kind, name): &(Kind, String)| match kind {
        Kind::Test => tests.contains(name),
        Kind::Sim => sim.contains(&format!("\"{name}\"")),
        Kind::Model => guards.contains(&format!("    {},\n", variant(name))),
        Kind::Mutation => mutations.contains(&format!("    {name},\n")),
    };
    let rows = rows(&page);
    let mut findings = Vec::new();
    for row in &rows {
        let invented = row.claims.iter().filter(|claim| !exists(claim));
        findings
            .extend(invented.map(|c| format!("{}: {:?} {} does not exist", row.name, c.0, c.1)));
        if row.claims.is_empty() {
            findings.push(format!("{}: nothing shows it", row.name));
        }
    }
    let named: BTreeSet<_> = rows.iter().map(|row| row.name.as_str()).collect();
    let expected = (1..=PITFALLS).map(|n| format!("P{n}"));
    findings.extend(
        expected
            .filter(|p| !named.contains(p.as_str()))
            .map(|p| format!("{p} is missing")),
    );
    let laws = rows_named(&read("docs/protocol.md"));
    assert!(laws.contains("L1"), "the laws were not found");
    let listed: BTreeSet<_> = named
        .iter()
        .filter(|name| name.starts_with('L'))
        .map(|&name| name.to_owned())
        .collect();
    assert_eq!(laws, listed, "laws of docs/protocol.md and docs/laws.md");
    assert_none("docs/laws.md claims too much", &findings);
}

#[test]
fn claims_are_found() {
    let page = "| x | y |\n|---|---|\n| P3 | a | b `c` | `d_e`, `f`; sim `g`, `h-i`; model `j`. No test: `k/` |\n";
    let claim = |kind, name: &str| (kind, name.to_owned());
    let expected = Row {
        name: "P3".to_owned(),
        claims: vec![
            claim(Kind::Test, "d_e"),
            claim(Kind::Test, "f"),
            claim(Kind::Sim, "g"),
            claim(Kind::Sim, "h-i"),
            claim(Kind::Model, "j"),
        ],
    };
    assert_eq!(rows(page), [expected]);
    assert_eq!(variant("read-exists"), "ReadExists");
}
