//! Configuration: plain structs parsed from TOML at one edge, checked as a whole, with all problems
//! in one report that names file, line and column.
//!
//! A configuration type has `#[serde(default)]` on every struct, so that any subset of keys is a
//! valid file; what must be given is checked in `Config::check`.

mod report;
mod units;
mod walk;

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::de::DeTable;

pub use report::{ConfigErrors, Located};
pub use units::{ByteSize, Listen, Period};

/// A daemon's configuration.
pub trait Config: DeserializeOwned + Default + Serialize {
    /// Contradictions between keys, and keys that must be given; empty when all is well.
    fn check(&self) -> Vec<Problem>;
}

/// What is wrong with one key, before its place in a file is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the key, as `arena.bytes`.
    pub key: String,
    /// Why, and what to write instead.
    pub message: String,
}

impl Problem {
    /// A problem of the key `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
        }
    }
}

/// Reads, parses and checks the file at `path`.
pub fn load<T: Config>(path: &Path) -> Result<T, ConfigErrors> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&name, &text),
        Err(why) => Err(ConfigErrors {
            problems: vec![Located::whole_file(format!("can't be read: {why}"))],
            file: name,
        }),
    }
}

/// Parses and checks `text`, which messages call `file`.
pub fn parse<T: Config>(file: &str, text: &str) -> Result<T, ConfigErrors> {
    let (table, syntax) = DeTable::parse_recoverable(text);
    let mut found: Vec<Located> = syntax
        .iter()
        .map(|e| Located::at(text, e.span(), "", format!("syntax: {}", e.message())))
        .collect();
    let walked = walk::walk::<T>(text, table);
    found.extend(walked.problems);
    // With broken syntax keys are missing that the person did write: contradictions would be guesses.
    if syntax.is_empty() {
        for problem in walked.config.check() {
            if !found.iter().any(|f| f.key == problem.key) {
                let place = walked.places.nearest(&problem.key);
                found.push(Located::at(text, place, &problem.key, problem.message));
            }
        }
    }
    if found.is_empty() {
        return Ok(walked.config);
    }
    found.sort_by_key(|p| (p.line, p.column));
    found.dedup();
    Err(ConfigErrors {
        file: file.into(),
        problems: found,
    })
}

/// Keys of the configuration that `text`, a shipped example file, does not list; a commented line
/// `# key = ...` counts. For the test that keeps the example complete.
pub fn unlisted_keys<T: Config>(text: &str) -> Vec<String> {
    let mut table = String::new();
    let mut listed = std::collections::BTreeSet::new();
    for line in text.lines().map(|l| l.trim_start_matches('#').trim()) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((key, _)) = line.split_once('=') {
            listed.insert(format!("{table}{}", key.trim()));
        }
    }
    let mut keys = walk::leaf_keys::<T>();
    keys.retain(|key| !listed.contains(key));
    keys
}

#[cfg(test)]
mod tests;
