//! docs/format.md names every error of the formats, and none that does not exist.

use std::fs;

use crate::{assert_none, root};

/// Enums whose variants the page names as `Enum::Variant`, and the file of each.
const ENUMS: [(&str, &str); 5] = [
    ("FormatError", "crates/core/src/error.rs"),
    ("FoldError", "crates/core/src/manifest/fold_error.rs"),
    ("Void", "crates/core/src/manifest/void.rs"),
    ("RecordVoid", "crates/core/src/manifest/void.rs"),
    ("PartError", "crates/core/src/tgb/part.rs"),
];

fn variants(source: &str, name: &str) -> Vec<String> {
    let head = format!("pub enum {name} {{");
    source
        .lines()
        .skip_while(|line| *line != head)
        .take_while(|line| *line != "}")
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .map(|line| identifier(line).to_owned())
        .collect()
}

fn identifier(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    &text[..end]
}

#[test]
fn the_format_page_names_every_error() {
    let page = fs::read_to_string(root().join("docs/format.md")).unwrap();
    let mut findings = Vec::new();
    for (name, file) in ENUMS {
        let known = variants(&fs::read_to_string(root().join(file)).unwrap(), name);
        assert!(!known.is_empty(), "{file} has no enum {name}");
        let prefix = format!("`{name}::");
        let named: Vec<_> = page.split(&prefix).skip(1).map(identifier).collect();
        let missing = known.iter().filter(|k| !named.contains(&k.as_str()));
        findings.extend(missing.map(|k| format!("{name}::{k} is not on the page")));
        let invented = named
            .iter()
            .filter(|n| !n.is_empty() && !known.iter().any(|k| k == *n));
        findings.extend(invented.map(|n| format!("{name}::{n} does not exist")));
    }
    assert_none(
        "docs/format.md and the code disagree about errors",
        &findings,
    );
}

#[test]
fn variants_are_found() {
    let source = "pub enum Void {\n    /// Doc.\n    #[error(\"x\")]\n    One(Name),\n    Two {\n        Three: u8,\n    },\n}\n";
    assert_eq!(variants(source, "Void"), ["One", "Two"]);
}
