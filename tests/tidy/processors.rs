//! Nothing assumes one kind of processor: own sources have no code for one, and each dependency that has
//! some states in `processors.txt` what runs elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::files::sources;
use crate::metadata::{list, load, text};
use crate::{assert_none, root};

/// Text of code for one kind of processor. This file has it in pieces.
const SPECIFIC: [&str; 7] = [
    concat!("target", "_arch"),
    concat!("target", "_feature"),
    concat!("target", "-cpu"),
    concat!("std::", "arch"),
    concat!("core::", "arch"),
    concat!("as", "m!("),
    concat!("feature_", "detected"),
];

/// Files below the root that may have it, with the reason.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Folders of a dependency that are compiled into no program.
const NOT_SHIPPED: [&str; 5] = ["tests", "benches", "examples", "fuzz", "target"];

/// The second column of `processors.txt`.
const WAYS: [&str; 3] = ["arm64 and portable", "portable", "C"];

#[test]
fn own_sources_have_no_code_for_one_processor() {
    let mut found = Vec::new();
    for (name, text) in sources(&["rs", "toml"]) {
        let excepted = EXCEPTIONS.iter().any(|(file, _)| *file == name);
        for (at, line) in text.lines().enumerate() {
            if !excepted && SPECIFIC.iter().any(|needle| line.contains(needle)) {
                found.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert_none(
        "code for one kind of processor; give it a portable way as well, and list it in EXCEPTIONS",
        &found,
    );
}

/// Whether a source of a dependency has instructions of one processor.
fn has_instructions(source: &str) -> bool {
    [
        concat!("arch::x", "86"),
        concat!("arch::aa", "rch64"),
        concat!("as", "m!("),
    ]
    .iter()
    .any(|needle| source.contains(needle))
}

fn is_specific(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or("");
        if path.is_dir() {
            return !NOT_SHIPPED.contains(&name) && is_specific(&path);
        }
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("rs") => fs::read(&path)
                .is_ok_and(|source| has_instructions(&String::from_utf8_lossy(&source))),
            Some("S" | "asm" | "c" | "cc") => true,
            _ => false,
        }
    })
}

/// The lines of `processors.txt`: crate, and its way on other processors.
fn stated() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("tests/tidy/processors.txt")).unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, way) = line.split_once(": ").unwrap();
            assert!(WAYS.contains(&way), "processors.txt: {line}");
            (name.to_owned(), way.to_owned())
        })
        .collect()
}

#[test]
fn dependencies_run_on_other_processors() {
    let metadata = load();
    let specific: BTreeSet<_> = list(&metadata, "packages")
        .filter(|package| !package["source"].is_null())
        .filter(|package| is_specific(Path::new(text(package, "manifest_path")).parent().unwrap()))
        .map(|package| text(package, "name").to_owned())
        .collect();
    let stated: BTreeSet<_> = stated().into_keys().collect();
    let missing: Vec<_> = specific.difference(&stated).cloned().collect();
    assert_none(
        "packages with code for one processor; state in tests/tidy/processors.txt what runs elsewhere",
        &missing,
    );
    let stale: Vec<_> = stated.difference(&specific).cloned().collect();
    assert_none(
        "lines of tests/tidy/processors.txt without such a package",
        &stale,
    );
}

#[test]
fn instructions_are_recognized() {
    let call = concat!("use std::ar", "ch::x", "86_64::*;");
    assert!(has_instructions(call));
    assert!(has_instructions(concat!("core::as", "m!(\"nop\")")));
    assert!(!has_instructions("fn march() {}"));
}
