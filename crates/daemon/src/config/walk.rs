//! Reads a configuration file key by key, because serde stops at the first wrong type.
//!
//! Every key is deserialized alone: all keys have defaults, so a file with one key is complete, and an
//! error is that key's. The same pass finds unknown keys.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

use super::wording::reword;
use super::{Config, Located};

/// Position of each key in the file, by its path.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<String, Range<usize>>);

impl Places {
    /// Returns the place of `key`, or of the nearest enclosing table in the file.
    pub(super) fn nearest(&self, key: &str) -> Option<Range<usize>> {
        let mut key = key;
        loop {
            if let Some(place) = self.0.get(key) {
                return Some(place.clone());
            }
            key = key.rsplit_once('.')?.0;
        }
    }
}

/// The result of a walk.
pub(super) struct Walked<T> {
    /// The configuration made of all valid keys.
    pub(super) config: T,
    pub(super) problems: Vec<Located>,
    pub(super) places: Places,
}

/// One key with its value, and the tables around it.
struct Leaf<'i> {
    path: Vec<Spanned<DeString<'i>>>,
    value: Spanned<DeValue<'i>>,
}

impl<'i> Leaf<'i> {
    fn name(&self) -> String {
        let parts: Vec<&str> = self.path.iter().map(|p| p.get_ref().as_ref()).collect();
        parts.join(".")
    }

    /// Puts the key back into `table`, within its enclosing tables.
    fn insert(&self, table: &mut DeTable<'i>) {
        let Some((last, parents)) = self.path.split_last() else {
            return;
        };
        let mut at = table;
        for parent in parents {
            let empty = Spanned::new(self.value.span(), DeValue::Table(DeTable::new()));
            let entry = at.entry(parent.clone()).or_insert(empty);
            let DeValue::Table(inner) = entry.get_mut() else {
                return;
            };
            at = inner;
        }
        at.insert(last.clone(), self.value.clone());
    }
}

pub(super) fn walk<T: Config>(text: &str, table: Spanned<DeTable<'_>>) -> Walked<T> {
    let schema = serde_json::to_value(T::default()).unwrap_or(Value::Null);
    let span = table.span();
    let mut places = Places::default();
    let mut leaves = Vec::new();
    collect(
        table.into_inner(),
        &schema,
        &mut Vec::new(),
        &mut places,
        &mut leaves,
    );

    let mut problems = Vec::new();
    let mut valid = DeTable::new();
    for leaf in &leaves {
        let mut alone = DeTable::new();
        leaf.insert(&mut alone);
        let found = check_key::<T>(text, Spanned::new(span.clone(), alone), leaf, &schema);
        if found.is_empty() {
            leaf.insert(&mut valid);
        }
        problems.extend(found);
    }
    let config = match from_table::<T>(Spanned::new(span, valid), &mut Vec::new()) {
        Ok(config) => config,
        Err(why) => {
            problems.push(Located::at(text, why.span(), "", why.message().into()));
            T::default()
        }
    };
    Walked {
        config,
        problems,
        places,
    }
}

/// Flattens the file into leaves; a table is descended into only where the configuration has one.
fn collect<'i>(
    table: DeTable<'i>,
    schema: &Value,
    path: &mut Vec<Spanned<DeString<'i>>>,
    places: &mut Places,
    leaves: &mut Vec<Leaf<'i>>,
) {
    for (key, value) in table {
        let inner = schema.get(key.get_ref().as_ref());
        path.push(key.clone());
        let span = value.span();
        let leaf = Leaf {
            path: path.clone(),
            value,
        };
        places.0.insert(leaf.name(), key.span());
        match (inner, leaf.value.into_inner()) {
            (Some(inner @ Value::Object(_)), DeValue::Table(table)) => {
                collect(table, inner, path, places, leaves);
            }
            (_, value) => leaves.push(Leaf {
                path: leaf.path,
                value: Spanned::new(span, value),
            }),
        }
        path.pop();
    }
}

fn from_table<T: Config>(
    table: Spanned<DeTable<'_>>,
    unknown: &mut Vec<String>,
) -> Result<T, toml::de::Error> {
    serde_ignored::deserialize(Deserializer::from(table), |path| {
        unknown.push(path.to_string());
    })
}

fn check_key<T: Config>(
    text: &str,
    alone: Spanned<DeTable<'_>>,
    leaf: &Leaf<'_>,
    schema: &Value,
) -> Vec<Located> {
    let name = leaf.name();
    let mut unknown = Vec::new();
    let outcome = from_table::<T>(alone, &mut unknown);
    let key_place = leaf.path.last().map(Spanned::span);
    let mut found: Vec<Located> = unknown
        .iter()
        .map(|key| {
            let hint = T::hint(key, leaf.value.get_ref().as_str());
            let idea = match hint {
                Some(hint) => format!(": {hint}"),
                None => suggestion(key, schema),
            };
            let message = format!("unknown key{idea}");
            Located::at(text, key_place.clone(), key, message)
        })
        .collect();
    if let Err(why) = outcome {
        // An empty span means that the error has no place in the file.
        let place = why
            .span()
            .filter(|s| !s.is_empty())
            .unwrap_or_else(|| leaf.value.span());
        let default = schema.pointer(&format!("/{}", name.replace('.', "/")));
        let mut message = reword(why.message(), leaf.value.get_ref(), default);
        let nearest = message.ends_with('?');
        if let Some(hint) = T::hint(&name, leaf.value.get_ref().as_str()).filter(|_| !nearest) {
            message = format!("{message}; {hint}");
        }
        found.push(Located::at(text, Some(place), &name, message));
    }
    found
}

/// Returns `; did you mean ...?`, from the same table first, then from any other; else the known keys.
fn suggestion(key: &str, schema: &Value) -> String {
    let (parent, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut all = Vec::new();
    paths(schema, "", &mut all);
    let here = all
        .iter()
        .filter(|p| p.rsplit_once('.').unwrap_or(("", p)).0 == parent);
    let near = here
        .map(|p| {
            (
                strsim::damerau_levenshtein(p.rsplit('.').next().unwrap_or(p), name),
                p,
            )
        })
        .min()
        .filter(|(distance, _)| *distance <= 2.max(name.len() / 3));
    let elsewhere = all.iter().find(|p| p.rsplit('.').next() == Some(name));
    if let Some(path) = near.map(|(_, p)| p).or(elsewhere) {
        return format!("; did you mean `{path}`?");
    }
    let known: Vec<&str> = all.iter().filter_map(|p| child_of(p, parent)).collect();
    format!("; known here: {}", known.join(", "))
}

/// Returns the last part of `path` if its table is `parent`.
fn child_of<'a>(path: &'a str, parent: &str) -> Option<&'a str> {
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    (table == parent).then_some(name)
}

/// Adds the paths of all keys and tables of the configuration to `out`.
fn paths(schema: &Value, prefix: &str, out: &mut Vec<String>) {
    let Value::Object(map) = schema else { return };
    for (key, value) in map {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        paths(value, &path, out);
        out.push(path);
    }
}

/// Returns the paths of all keys that hold a value.
pub(super) fn leaf_keys<T: Config>() -> Vec<String> {
    let schema = serde_json::to_value(T::default()).unwrap_or(Value::Null);
    let mut all = Vec::new();
    paths(&schema, "", &mut all);
    let is_table = |path: &String| all.iter().any(|p| p.starts_with(&format!("{path}.")));
    all.iter().filter(|p| !is_table(p)).cloned().collect()
}
