//! Configuration: plain structs parsed from TOML and checked as a whole, with all problems
//! in one report that names file, line and column.
//!
//! A configuration type has `#[serde(default)]` on every struct, so that any subset of keys is a
//! valid file; `Config::check` reports missing required keys.

pub mod other_names;
mod overrides;
mod parser_messages;
mod paths;
mod report;
mod store;
mod syntax;
mod units;
mod walk;
mod wording;

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::DeTable;

pub use overrides::Overrides;
pub use report::{ConfigErrors, Located};
pub use store::StoreConfig;
pub use units::{ByteSize, Listen, Period};
pub use wording::nearest;

/// The configuration of a program.
pub trait Config: DeserializeOwned + Default + Serialize {
    /// Returns contradictions between keys and missing required keys.
    fn check(&self) -> Vec<Problem>;

    /// Returns the keys that must not be in the file beside others, whatever their values; `given` says which are there.
    fn check_given(&self, given: &dyn Fn(&str) -> bool) -> Vec<Problem> {
        let _ = given;
        Vec::new()
    }

    /// Returns the remedy for an unknown key with the text `value`: the name that another program gives to
    /// something of this one.
    fn hint(key: &str, value: Option<&str>) -> Option<String> {
        let _ = (key, value);
        None
    }

    /// Returns the remedy for a key whose value has a wrong type.
    fn value_hint(key: &str, value: Option<&str>) -> Option<String> {
        other_names::of_value(key, value)
    }

    /// Returns the lists of tables whose keys are checked one by one, each with such a table as the schema.
    fn tables_of() -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Returns the keys that can stand in for `key`, as `sources.*` for all of a table: while one of these is wrong
    /// in the file, a missing `key` is not reported.
    fn stands_in(key: &str) -> &'static [&'static str] {
        let _ = key;
        &[]
    }
}

/// A problem with one key, before its place in the file is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the key, for example `arena.bytes`.
    pub key: String,
    /// The cause and a valid alternative.
    pub message: String,
}

impl Problem {
    /// Returns a problem of the key `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
        }
    }
}

/// Most bytes of a configuration file.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Reads, parses and checks the file at `path`.
pub fn load<T: Config>(path: &Path) -> Result<T, ConfigErrors> {
    load_with(path, &Overrides::default())
}

/// Reads, parses and checks the file at `path`, changed by `overrides`.
pub fn load_with<T: Config>(path: &Path, overrides: &Overrides) -> Result<T, ConfigErrors> {
    let name = path.display().to_string();
    match read(path) {
        Ok(text) => parse_with(&name, &text, overrides),
        Err(why) => Err(ConfigErrors {
            problems: vec![Located::whole_file(unreadable(&why))],
            file: name,
        }),
    }
}

/// Reads a regular file. A pipe would hang a program that nobody writes to, and can't be read again at a reload.
fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        let text = "it is a pipe or a device; write the configuration into a file";
        return Err(std::io::Error::other(text));
    }
    if kind.len() > CONFIG_BYTES_MAX {
        let text = format!(
            "it has {} bytes, and a configuration at most {CONFIG_BYTES_MAX}",
            kind.len()
        );
        return Err(std::io::Error::other(text));
    }
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(why: &std::io::Error) -> String {
    let remedy = match why.kind() {
        std::io::ErrorKind::NotFound => "; give the path of the configuration file",
        std::io::ErrorKind::IsADirectory => "; give the path of the configuration file in it",
        std::io::ErrorKind::PermissionDenied => "; let this user read it",
        std::io::ErrorKind::InvalidData => "; write it as TOML in UTF-8",
        _ => "",
    };
    format!("cannot read it: {why}{remedy}")
}

/// Parses and checks `text`; messages name it `file`.
pub fn parse<T: Config>(file: &str, text: &str) -> Result<T, ConfigErrors> {
    parse_with(file, text, &Overrides::default())
}

fn parse_with<T: Config>(file: &str, text: &str, overrides: &Overrides) -> Result<T, ConfigErrors> {
    let (mut table, syntax) = DeTable::parse_recoverable(text);
    if let (Some(first), Some(language)) = (syntax.first(), syntax::other_language(text)) {
        let message = format!(
            "syntax: this looks like {language}, and the configuration is TOML: write tables as [store] and keys as url = \"...\""
        );
        return Err(ConfigErrors {
            file: file.into(),
            problems: vec![Located::at(text, first.span(), "", message)],
        });
    }
    overrides.remove_ignored(table.get_mut());
    let mut found = Vec::new();
    for error in &syntax {
        let place = error.span();
        let at = place.as_ref().map_or(0, |place| place.start);
        let sentence = syntax::explain(error.message(), text, at);
        found.push(Located::at(text, place, "", format!("syntax: {sentence}")));
    }
    // Further errors on a line are consequences of its first one, as are wrong values there.
    found.dedup_by_key(|problem| problem.line);
    let open = found
        .iter()
        .position(|problem| problem.message.ends_with(syntax::UNCLOSED));
    found.truncate(open.map_or(found.len(), |open| open + 1));
    let broken: Vec<usize> = found.iter().map(|problem| problem.line).collect();
    let mut walked = walk::walk::<T>(text, table);
    found.extend(
        walked
            .problems
            .into_iter()
            .filter(|problem| !broken.contains(&problem.line)),
    );
    if !overrides.set.is_empty() {
        match overrides.apply(&walked.config) {
            Ok(config) => walked.config = config,
            Err(why) => found.push(Located::whole_file(why)),
        }
    }
    // With broken syntax, keys that the file does contain are missing: contradictions would be guesses.
    if syntax.is_empty() {
        let given = |key: &str| walked.places.has(key) || overrides.has(key);
        let all = walked.config.check_given(&given).into_iter();
        for problem in all.chain(walked.config.check()) {
            let stand_ins = T::stands_in(&problem.key);
            let excused = |key: &str| {
                let stands_in = |one: &&str| match one.strip_suffix('*') {
                    Some(table) => key.starts_with(table),
                    None => key == *one,
                };
                key == problem.key || stand_ins.iter().any(stands_in)
            };
            if !found.iter().any(|f| excused(&f.key)) {
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

/// Returns the keys of the configuration that `text`, a shipped example file, does not list; a
/// commented line `# key = ...` counts. For the test that keeps the example complete.
pub fn unlisted_keys<T: Config>(text: &str) -> Vec<String> {
    let mut table = String::new();
    let mut listed = std::collections::BTreeSet::new();
    for line in text.lines().map(|l| l.trim_start_matches('#').trim()) {
        if let Some(name) = line.strip_prefix("[[").and_then(|l| l.strip_suffix("]]")) {
            // A list of tables, which is one key.
            listed.insert(name.to_owned());
            table = format!("{name}.");
        } else if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
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
