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
    let default = PackingConfig::default();
    let chat_default = ChatConfig::default();
    let chat = packing.mode.has_template();
    let pairs = packing.mode == PackingMode::Pairs;
    // A key that is read by itself has another meaning when it is ignored; any other stopped the producer before.
    let unread = config.chat.ignore.iter();
    let unread: Vec<&String> = unread
        .filter(|key| LOSS_KEYS.contains(&key.as_str()))
        .collect();
    // Only where they differ from the default, so that cursors of plain rows stay as they are.
    let sometimes = [
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
        (source.follow, "source.follow", json!(true)),
        (source.inbox, "source.inbox", json!(true)),
        (
            packing.mode == PackingMode::Chat,
            "chat.messages",
            json!(config.chat.messages),
        ),
        (pairs, "chat.prompt", json!(config.chat.prompt)),
        (pairs, "chat.chosen", json!(config.chat.chosen)),
        (pairs, "chat.rejected", json!(config.chat.rejected)),
        (chat, DIALECT_KEY, json!(Dialect::default() as u8)),
        (chat, "chat.tools", json!(config.chat.tools)),
        (
            chat && config.chat.role_key != chat_default.role_key,
            "chat.role_key",
            json!(config.chat.role_key),
        ),
        (
            chat && config.chat.content_key != chat_default.content_key,
            "chat.content_key",
            json!(config.chat.content_key),
        ),
        (
            chat && !config.chat.roles.is_empty(),
            "chat.roles",
            json!(config.chat.roles),
        ),
        (
            chat && config.chat.learn != chat_default.learn,
            "chat.learn",
            json!(config.chat.learn),
        ),
        (
            chat && !config.chat.loss_keys.is_empty(),
            "chat.loss_keys",
            json!(config.chat.loss_keys),
        ),
        (chat && !unread.is_empty(), IGNORED_KEY, json!(unread)),
        (
            chat && !config.chat.date.is_empty(),
            "chat.date",
            json!(config.chat.date),
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
    ];
    let several = !config.sources.is_empty();
    let mixture = config.kept_mixture();
    let of_sources = [
        (config.split.every > 0, "split", json!(config.split)),
        (several, "sources", sources(config)),
        (
            several && mixture != MixtureConfig::UNTIL_LAST_WAS_ADDED,
            "mixture",
            json!(mixture),
        ),
    ];
    let sometimes = sometimes.into_iter().chain(of_sources);
    let sometimes = sometimes.filter(|(applies, _, _)| *applies);
    always
        .into_iter()
        .chain(sometimes.map(|(_, key, value)| (key, value)))
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
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
