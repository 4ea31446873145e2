//! Remedies for keys and values that other data loaders have under another name, or not at all.

use batchweave_daemon::config::other_names;

/// Returns the remedy for the unknown key `key` with the text `value`.
pub(super) fn hint(key: &str, value: Option<&str>) -> Option<String> {
    if let ("tokenizer.model" | "model" | "tokenizer.name_or_path", Some(value)) = (key, value) {
        return Some(tokenizer(value));
    }
    let table = key.split('.').next().unwrap_or(key);
    if ["arena", "socket", "job", "prefetch", "follow", "reclaim"].contains(&table) {
        let text = "it belongs to the consumer's configuration, and this is the producer's; config/producer.toml lists its keys";
        return Some(text.to_owned());
    }
    other_names::of_producer(key)
}

/// Returns the remedy for the key `key`, whose value has a wrong type or is an unknown word.
pub(super) fn value_hint(key: &str, value: Option<&str>) -> Option<String> {
    match (key, value) {
        ("tokenizer" | "tokenizer.name", Some(value)) => Some(tokenizer(value)),
        _ => other_names::of_value(key, value),
    }
}

/// Returns how to name the tokenizer of the model `name`.
fn tokenizer(name: &str) -> String {
    if matches!(name, "gpt2" | "openai-community/gpt2") {
        return "write `tokenizer.name = \"gpt2\"` with the kind \"embedded\"".to_owned();
    }
    format!(
        "for a model, download its tokenizer.json and write `tokenizer = {{ kind = \"file\", path = \"{name}/tokenizer.json\" }}`"
    )
}
