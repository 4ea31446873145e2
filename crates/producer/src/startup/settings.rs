//! The settings that a cursor keeps.

use serde_json::{Map, Value, json};

use crate::config::{MixtureConfig, PackingConfig, ProducerConfig, SourceConfig};
use crate::packing::ArraySpec;
use crate::transform::DocumentTransform;
use crate::transform::chat::{DIALECT_KEY, Dialect, LOSS_KEYS};

/// The keys of messages that are read by default and ignored.
pub(super) const IGNORED_KEY: &str = "chat.ignore";

/// Returns by configuration key all settings that decide the batches' bytes and are not pinned by stream.json.
/// `on_bad_document` is not among them: no byte before the cursor depends on it, and its errors advise to
/// change it.
pub(super) fn settings(
    config: &ProducerConfig,
    transform: &DocumentTransform,
) -> Map<String, Value> {
    let derived = of_tokens(transform)
        .into_iter()
        .chain(of_arrays(&config.packing))
        .chain(of_rows(&config.packing))
        .chain(of_template(config))
        .chain(of_sources(config));
    let all = config.decisive().into_iter().chain(derived);
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

type Setting = (&'static str, Value);

/// Returns the settings of each configured stage.
pub(super) fn of_stages(config: &ProducerConfig) -> Map<String, Value> {
    let stages = config.stages.iter();
    stages
        .map(|stage| (stage.name.clone(), stage.settings(config)))
        .collect()
}

/// Returns the tokens around documents, by their texts in the tokenizer.
fn of_tokens(transform: &DocumentTransform) -> Vec<Setting> {
    let begin = transform.begin_token();
    let end = ("tokenizer.end_token", json!(transform.end_token()));
    let begin = begin.map(|token| ("tokenizer.begin_token", json!(token)));
    [end].into_iter().chain(begin).collect()
}

/// Returns the fields and columns that are read for arrays, where these do not have their names.
fn of_arrays(packing: &PackingConfig) -> Vec<Setting> {
    let (arrays, extra) = (&packing.arrays, &packing.extra);
    let mut found = Vec::new();
    if arrays
        .iter()
        .any(|array| !array.from.is_empty() || array.path)
    {
        found.push(("packing.arrays", arrays.iter().map(array).collect()));
    }
    if extra.iter().any(|column| !column.from.is_empty()) {
        let columns = extra.iter().map(ArraySpec::source);
        found.push(("packing.extra", columns.collect()));
    }
    found
}

/// Returns the windows of shuffled rows.
fn of_rows(packing: &PackingConfig) -> Option<Setting> {
    let window = packing.shuffle_rows?;
    let value = json!({"tokens": window.tokens, "seed": window.seed});
    Some(("packing.shuffle_rows", value))
}

/// Returns the rules by which conversations are read.
fn of_template(config: &ProducerConfig) -> Vec<Setting> {
    if !config.documents().has_template() {
        return Vec::new();
    }
    // A key that is read by itself has another meaning when it is ignored; any other stopped the producer before.
    let ignored = config.chat.ignore.iter();
    let unread: Vec<&String> = ignored
        .filter(|key| LOSS_KEYS.contains(&key.as_str()))
        .collect();
    let dialect = (DIALECT_KEY, json!(Dialect::default() as u8));
    let unread = (!unread.is_empty()).then(|| (IGNORED_KEY, json!(unread)));
    [dialect].into_iter().chain(unread).collect()
}

/// Returns the settings of several sources, and what is held out of them.
fn of_sources(config: &ProducerConfig) -> Vec<Setting> {
    let mut found = Vec::new();
    if config.split.every > 0 {
        found.push(("split", json!(config.split)));
    }
    if !config.sources.is_empty() {
        found.push(("sources", sources(config)));
        let mixture = config.kept_mixture();
        if mixture != MixtureConfig::UNTIL_LAST_WAS_ADDED {
            found.push(("mixture", json!(mixture)));
        }
    }
    found
}

/// Returns the field or column of an array.
fn array(array: &ArraySpec) -> String {
    if array.path {
        format!("file {}", array.source())
    } else {
        array.source().to_owned()
    }
}

/// Returns the settings of each source that decide the order and the documents. Passes are not among them: more can be
/// added while the last one is read.
fn sources(config: &ProducerConfig) -> Value {
    let default = SourceConfig::default();
    let all = config.sources.iter().map(|source| {
        let mut own = Map::new();
        let mut put = |key: &str, applies: bool, value: Value| {
            if applies {
                own.insert(key.to_owned(), value);
            }
        };
        put("name", true, json!(source.name));
        put("weight", true, json!(source.weight));
        put(
            "format",
            source.format != default.format,
            json!(source.format),
        );
        put("field", source.field != default.field, json!(source.field));
        put(
            "column",
            source.column != default.column,
            json!(source.column),
        );
        put("follow", source.follow, json!(true));
        put("inbox", source.inbox, json!(true));
        if let Some(shuffle) = source.shuffle {
            put("seed", true, json!(shuffle.seed));
            put("window", true, json!(shuffle.window));
        }
        Value::Object(own)
    });
    all.collect()
}
