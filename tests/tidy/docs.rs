//! Claims of the documentation: links have targets, TOML parses, commands, errors, tests and files exist.

mod adding_a_store;
mod commands;
mod crates;
mod errors;
mod links;
mod protocol;
mod security;
mod socket;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{assert_none, root};

/// A page of documentation.
struct Page {
    name: String,
    text: String,
}

/// All pages of the documentation.
fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = [
        "README.md",
        "CHANGELOG.md",
        "deploy/README.md",
        "python/README.md",
    ]
    .iter()
    .map(PathBuf::from)
    .collect();
    markdown_below(Path::new("docs"), &mut paths);
    paths.sort();
    let read = |path: PathBuf| Page {
        text: fs::read_to_string(root().join(&path)).unwrap(),
        name: path.display().to_string(),
    };
    paths.into_iter().map(read).collect()
}

fn markdown_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(dir)).unwrap() {
        let entry = entry.unwrap();
        let path = dir.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            markdown_below(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// A line of a page, with its number and the block around it.
struct Line<'a> {
    number: usize,
    text: &'a str,
    /// The language of the fenced block around it; `Some("")` for an indented block.
    block: Option<&'a str>,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    let mut listed = false;
    for (text, number) in text.lines().zip(1..) {
        if let Some(language) = text.strip_prefix("```") {
            fence = if fence.is_some() {
                None
            } else {
                Some(language.trim())
            };
            continue;
        }
        let first = text.chars().next();
        if first.is_some_and(|c| !c.is_whitespace()) {
            listed = text.starts_with("- ") || first.is_some_and(|c| c.is_ascii_digit());
        }
        let indented = text.starts_with("    ") && !listed;
        let block = fence.or(indented.then_some(""));
        lines.push(Line {
            number,
            text,
            block,
        });
    }
    lines
}

#[test]
fn toml_blocks_parse() {
    let mut findings = Vec::new();
    for page in pages() {
        for (number, block) in toml_blocks(&page.text) {
            if let Err(error) = block.parse::<toml::Table>() {
                findings.push(format!("{}:{number}: {error}", page.name));
            }
        }
    }
    assert_none("TOML in the documentation that does not parse", &findings);
}

fn toml_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut next = 0;
    for line in lines(text).into_iter().filter(|l| l.block == Some("toml")) {
        if line.number != next || blocks.is_empty() {
            blocks.push((line.number, String::new()));
        }
        next = line.number + 1;
        if let Some((_, block)) = blocks.last_mut() {
            block.push_str(line.text);
            block.push('\n');
        }
    }
    blocks
}

#[test]
fn blocks_are_told_from_text() {
    let text = "a\n\n    b\n\n- c\n    d\n\n```toml\ne = 1\n```\nf\n```toml\ng = 2\nh = 3\n```\n";
    let inside: Vec<_> = lines(text)
        .iter()
        .filter_map(|l| Some((l.text, l.block?)))
        .collect();
    let expected = [
        ("    b", ""),
        ("e = 1", "toml"),
        ("g = 2", "toml"),
        ("h = 3", "toml"),
    ];
    assert_eq!(inside, expected);
    assert_eq!(
        toml_blocks(text),
        [(9, "e = 1\n".to_owned()), (13, "g = 2\nh = 3\n".to_owned())]
    );
}
