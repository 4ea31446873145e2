//! Changes that a command line makes to a configuration file. `batchweave run` starts both daemons from one
//! file with them.

use toml::de::DeTable;
use toml::{Table, Value};

use super::Config;

/// Tables of a file that belong to another program, and keys with other values than the file's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Names of top-level tables that are not read.
    pub ignored: Vec<String>,
    /// Keys with their values, as `admin.listen=off`. A value is TOML, or else a string.
    pub set: Vec<String>,
}

impl Overrides {
    /// Removes the tables of other programs.
    pub(super) fn remove_ignored(&self, table: &mut DeTable<'_>) {
        for name in &self.ignored {
            table.remove(name.as_str());
        }
    }

    /// Returns whether the command line gives this key.
    pub(super) fn has(&self, key: &str) -> bool {
        let assigned = self.set.iter().filter_map(|one| one.split_once('='));
        assigned.into_iter().any(|(name, _)| name == key)
    }

    /// Returns `config` with the replaced keys; an error names the key.
    pub(super) fn apply<T: Config>(&self, config: &T) -> Result<T, String> {
        let failed = |why: &dyn std::fmt::Display| format!("--set {}: {why}", self.set.join(" "));
        let mut table = Table::try_from(config).map_err(|why| failed(&why))?;
        for assignment in &self.set {
            let Some((key, text)) = assignment.split_once('=') else {
                return Err(format!("--set {assignment}: expected KEY=VALUE"));
            };
            put(&mut table, key, value(text));
        }
        let mut unknown = Vec::new();
        let config = serde_ignored::deserialize(Value::Table(table), |path| {
            unknown.push(path.to_string());
        });
        match unknown.first() {
            Some(key) => Err(failed(&format!("{key}: unknown key"))),
            None => config.map_err(|why: toml::de::Error| failed(&why)),
        }
    }
}

fn value(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}"));
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn put(table: &mut Table, key: &str, value: Value) {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return;
    };
    let inner = table.entry(first).or_insert_with(|| Table::new().into());
    if let Value::Table(inner) = inner {
        put(inner, rest, value);
    }
}
