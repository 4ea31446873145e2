//! The settings that a cursor keeps.

use serde_json::{Map, Value, json};

use crate::config::{
    ChatConfig, MixtureConfig, PackingConfig, PackingMode, ProducerConfig, SourceConfig,
    SourceContent,
};
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
    let (source, packing) = (&config.source, &config.packing);
    let always = [
        ("producer.index", json!(config.producer.index)),
        ("producer.of", json!(config.producer.of)),
        ("source.format", json!(source.format)),
        ("source.field", json!(source.field)),
        ("source.column", json!(source.column)),
        (
            "source.max_document_bytes",
            json!(source.max_document_bytes),
        ),
        ("tokenizer.end_token", json!(transform.end_token())),
        ("packing.last_batch", json!(packing.last_batch)),
        ("packing.pad_token", json!(packing.pad_token)),
    ];
    let sometimes = (packing_settings(packing).into_iter())
        .chain(chat_settings(&config.chat, packing.mode))
        .chain(document_settings(config, transform))
        .chain(source_settings(config))
        .filter_map(|(applies, key, value)| applies.then_some((key, value)));
    always
        .into_iter()
        .chain(sometimes)
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A setting that is kept only where it differs from the default, so that cursors of plain rows stay as they are:
/// whether it does, its key, and its value.
type Sometimes = (bool, &'static str, Value);

fn packing_settings(packing: &PackingConfig) -> [Sometimes; 4] {
    let default = PackingConfig::default();
    [
        (
            packing.mode != default.mode,
            "packing.mode",
            json!(packing.mode),
        ),
        (
            packing.look_ahead != default.look_ahead,
            "packing.look_ahead",
            json!(packing.look_ahead),
        ),
        (
            (packing.arrays.iter()).any(|array| !array.from.is_empty() || array.path),
            "packing.arrays",
            packing.arrays.iter().map(array).collect(),
        ),
        (
            packing.extra.iter().any(|column| !column.from.is_empty()),
            "packing.extra",
            packing.extra.iter().map(ArraySpec::source).collect(),
        ),
    ]
}

fn chat_settings(chat: &ChatConfig, mode: PackingMode) -> [Sometimes; 13] {
    let default = ChatConfig::default();
    let template = mode.has_template();
    let pairs = mode == PackingMode::Pairs;
    // A key that is read by itself has another meaning when it is ignored; any other stopped the producer before.
    let unread: Vec<&String> = (chat.ignore.iter())
        .filter(|key| LOSS_KEYS.contains(&key.as_str()))
        .collect();
    [
        (
            mode == PackingMode::Chat,
            "chat.messages",
            json!(chat.messages),
        ),
        (pairs, "chat.prompt", json!(chat.prompt)),
        (pairs, "chat.chosen", json!(chat.chosen)),
        (pairs, "chat.rejected", json!(chat.rejected)),
        (template, DIALECT_KEY, json!(Dialect::default() as u8)),
        (template, "chat.tools", json!(chat.tools)),
        (
            template && chat.role_key != default.role_key,
            "chat.role_key",
            json!(chat.role_key),
        ),
        (
            template && chat.content_key != default.content_key,
            "chat.content_key",
            json!(chat.content_key),
        ),
        (
            template && !chat.roles.is_empty(),
            "chat.roles",
            json!(chat.roles),
        ),
        (
            template && chat.learn != default.learn,
            "chat.learn",
            json!(chat.learn),
        ),
        (
            template && !chat.loss_keys.is_empty(),
            "chat.loss_keys",
            json!(chat.loss_keys),
        ),
        (template && !unread.is_empty(), IGNORED_KEY, json!(unread)),
        (
            template && !chat.date.is_empty(),
            "chat.date",
            json!(chat.date),
        ),
    ]
}

/// Returns the settings of how a document is read and changed.
fn document_settings(config: &ProducerConfig, transform: &DocumentTransform) -> [Sometimes; 8] {
    let source = &config.source;
    [
        (source.follow, "source.follow", json!(true)),
        (source.inbox, "source.inbox", json!(true)),
        (
            source.content != SourceContent::Text,
            "source.content",
            json!(source.content),
        ),
        (
            transform.begin_token().is_some(),
            "tokenizer.begin_token",
            json!(transform.begin_token()),
        ),
        (!source.root.is_empty(), "source.root", json!(source.root)),
        (!source.mask.is_empty(), "source.mask", json!(source.mask)),
        (
            !config.transform.function.is_empty(),
            "transform.function",
            json!(config.transform.function),
        ),
        (
            !config.transform.fields.is_empty(),
            "transform.fields",
            json!(config.transform.fields),
        ),
    ]
}

/// Returns the settings of how several sources are mixed, and of the split.
fn source_settings(config: &ProducerConfig) -> [Sometimes; 3] {
    let several = !config.sources.is_empty();
    let mixture = config.kept_mixture();
    [
        (config.split.every > 0, "split", json!(config.split)),
        (several, "sources", sources(config)),
        (
            several && mixture != MixtureConfig::UNTIL_LAST_WAS_ADDED,
            "mixture",
            json!(mixture),
        ),
    ]
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
