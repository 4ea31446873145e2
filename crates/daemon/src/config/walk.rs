//! Reads a configuration file key by key, because serde stops at the first wrong type.
//!
//! Every key is deserialized alone: all keys have defaults, so a file with one key is complete, and an
//! error is that key's. The same pass finds unknown keys. Tables of a list (`[[sources]]`) are read in
//! the same way, where the configuration names their keys ([`Config::tables_of`]).

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue, Deserializer};

use super::paths::paths;
use super::wording::{reword, suggestion};
use super::{Config, Located};

/// Position of each key in the file, by its path.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<String, Range<usize>>);

impl Places {
    /// Returns whether the file has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the place of `key`, or of the nearest enclosing table in the file.
    pub(super) fn nearest(&self, mut key: &str) -> Option<Range<usize>> {
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

/// One part of a path: a key, or the number of a table in a list.
#[derive(Clone)]
enum Part<'i> {
    Key(Spanned<DeString<'i>>),
    Item(usize),
}

/// One key with its value, and the tables around it.
#[derive(Clone)]
struct Leaf<'i> {
    path: Vec<Part<'i>>,
    /// The path as messages name it: tables of a list by their names, or by their numbers from 1.
    name: String,
    /// The path in the schema, which has one table for all of a list.
    known_as: String,
    value: Spanned<DeValue<'i>>,
}

impl<'i> Leaf<'i> {
    /// Puts the key back into `table`, within its enclosing tables; if `alone`, as if its table were the
    /// only one of a list.
    fn insert(&self, table: &mut DeTable<'i>, alone: bool) {
        let Some((Part::Key(first), rest)) = self.path.split_first() else {
            return;
        };
        let at = table.entry(first.clone());
        let span = self.value.span();
        self.put(
            at.or_insert_with(|| empty(&span, rest.first())),
            rest,
            alone,
        );
    }

    fn put(&self, at: &mut Spanned<DeValue<'i>>, rest: &[Part<'i>], alone: bool) {
        let Some((part, rest)) = rest.split_first() else {
            *at = self.value.clone();
            return;
        };
        let span = self.value.span();
        match (at.get_mut(), part) {
            (DeValue::Table(table), Part::Key(key)) => {
                let inner = table
                    .entry(key.clone())
                    .or_insert_with(|| empty(&span, rest.first()));
                self.put(inner, rest, alone);
            }
            (DeValue::Array(items), Part::Item(number)) => {
                let number = if alone { 0 } else { *number };
                while items.len() <= number {
                    items.push(Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
                }
                if let Some(item) = items.get_mut(number) {
                    self.put(item, rest, alone);
                }
            }
            _ => {}
        }
    }
}

/// Returns an empty value that can hold `next`.
fn empty<'i>(span: &Range<usize>, next: Option<&Part<'_>>) -> Spanned<DeValue<'i>> {
    let value = match next {
        Some(Part::Item(_)) => DeValue::Array(DeArray::new()),
        _ => DeValue::Table(DeTable::new()),
    };
    Spanned::new(span.clone(), value)
}

pub(super) fn walk<T: Config>(text: &str, table: Spanned<DeTable<'_>>) -> Walked<T> {
    let schema = schema::<T>();
    let span = table.span();
    let default = serde_json::to_value(T::default()).unwrap_or(Value::Null);
    let is_list = |key: &&str| default.pointer(&pointer(key)).is_some_and(Value::is_array);
    let tables = T::tables_of().into_iter().map(|(key, _)| key);
    let mut collected = Collected {
        lists: tables.filter(is_list).collect(),
        ..Collected::default()
    };
    let root = (Vec::new(), String::new(), String::new());
    collected.table(table.into_inner(), &schema, &root);

    let mut problems = Vec::new();
    let mut valid = DeTable::new();
    for leaf in &collected.leaves {
        let mut alone = DeTable::new();
        leaf.insert(&mut alone, true);
        let found = check_key::<T>(text, Spanned::new(span.clone(), alone), leaf, &schema);
        if found.is_empty() {
            leaf.insert(&mut valid, false);
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
        places: collected.places,
    }
}

/// The parts of a path, its name, and its path in the schema.
type At<'i> = (Vec<Part<'i>>, String, String);

/// The keys of a file.
#[derive(Default)]
struct Collected<'i> {
    /// Lists whose tables are read key by key.
    lists: Vec<&'static str>,
    places: Places,
    leaves: Vec<Leaf<'i>>,
}

impl<'i> Collected<'i> {
    /// Flattens a table into leaves; a table is descended into only where the configuration has one.
    fn table(&mut self, table: DeTable<'i>, schema: &Value, at: &At<'i>) {
        for (key, value) in table {
            let inner = schema.get(key.get_ref().as_ref());
            let below = |path: &str| match path {
                "" => key.get_ref().to_string(),
                path => format!("{path}.{}", key.get_ref()),
            };
            let mut here = (at.0.clone(), below(&at.1), below(&at.2));
            self.places.0.insert(here.1.clone(), key.span());
            here.0.push(Part::Key(key));
            let list = self.lists.contains(&here.2.as_str());
            let span = value.span();
            match (inner, value.into_inner()) {
                // An empty table sets an optional one to its defaults, so it is a value.
                (Some(inner @ Value::Object(_)), DeValue::Table(table))
                    if !list && !table.is_empty() =>
                {
                    self.table(table, inner, &here);
                }
                (Some(inner), DeValue::Array(items)) if list && all_tables(&items) => {
                    for (number, item) in items.into_iter().enumerate() {
                        self.item(item, number, inner, &here);
                    }
                }
                (_, value) => self.leaf(here, Spanned::new(span, value)),
            }
        }
    }

    /// Flattens one table of a list.
    fn item(&mut self, item: Spanned<DeValue<'i>>, number: usize, schema: &Value, at: &At<'i>) {
        let span = item.span();
        let DeValue::Table(table) = item.into_inner() else {
            return;
        };
        let named = table.get("name").and_then(|name| name.get_ref().as_str());
        let label = match named.filter(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None => (number + 1).to_string(),
        };
        let mut here = (at.0.clone(), format!("{}.{label}", at.1), at.2.clone());
        here.0.push(Part::Item(number));
        self.places.0.insert(here.1.clone(), span.clone());
        // Empty at first: one whose keys are all wrong is a table of the list, too.
        let none = DeValue::Table(DeTable::new());
        self.leaf(here.clone(), Spanned::new(span, none));
        self.table(table, schema, &here);
    }

    fn leaf(&mut self, (path, name, known_as): At<'i>, value: Spanned<DeValue<'i>>) {
        self.leaves.push(Leaf {
            path,
            name,
            known_as,
            value,
        });
    }
}

fn all_tables(items: &DeArray<'_>) -> bool {
    items
        .iter()
        .all(|item| matches!(item.get_ref(), DeValue::Table(_)))
}

/// Deserializes `table`; collects the paths of unknown keys.
fn from_table<T: Config>(
    table: Spanned<DeTable<'_>>,
    unknown: &mut Vec<String>,
) -> Result<T, toml::de::Error> {
    serde_ignored::deserialize(Deserializer::from(table), |path| {
        // A table without a default has a part of its own in the path.
        unknown.push(path.to_string().replace(".?", ""));
    })
}

fn check_key<T: Config>(
    text: &str,
    alone: Spanned<DeTable<'_>>,
    leaf: &Leaf<'_>,
    schema: &Value,
) -> Vec<Located> {
    let mut unknown = Vec::new();
    let outcome = from_table::<T>(alone, &mut unknown);
    let key_place = leaf.path.iter().rev().find_map(|part| match part {
        Part::Key(key) => Some(key.span()),
        Part::Item(_) => None,
    });
    let listed = leaf.path.iter().any(|part| matches!(part, Part::Item(_)));
    let value = leaf.value.get_ref().as_str();
    let mut found: Vec<Located> = unknown
        .iter()
        .map(|key| {
            // A table of a list is number 0 when it is alone.
            let (key, known_as) = if listed {
                (&leaf.name, &leaf.known_as)
            } else {
                (key, key)
            };
            let idea = match T::hint(known_as, value) {
                Some(hint) => format!(": {hint}"),
                None => suggestion(known_as, schema),
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
        let default = schema.pointer(&pointer(&leaf.known_as));
        let mut message = reword(why.message(), &leaf.value, &place, default);
        let nearest = message.ends_with('?');
        if let Some(hint) = T::value_hint(&leaf.known_as, value).filter(|_| !nearest) {
            message = format!("{message}; {hint}");
        }
        found.push(Located::at(text, Some(place), &leaf.name, message));
    }
    found
}

/// Returns the place of a key in a schema.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

/// Returns all keys with their defaults; a list of tables, and a table without a default, as one table.
fn schema<T: Config>() -> Value {
    let mut schema = serde_json::to_value(T::default()).unwrap_or(Value::Null);
    for (key, table) in T::tables_of() {
        if let Some(known) = schema.pointer_mut(&pointer(key)) {
            *known = table;
        }
    }
    schema
}

/// Returns the paths of all keys that hold a value.
pub(super) fn leaf_keys<T: Config>() -> Vec<String> {
    let schema = serde_json::to_value(T::default()).unwrap_or(Value::Null);
    let mut all = Vec::new();
    paths(&schema, "", &mut all);
    let is_table = |path: &String| all.iter().any(|p| p.starts_with(&format!("{path}.")));
    all.iter().filter(|p| !is_table(p)).cloned().collect()
}
