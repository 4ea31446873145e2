//! The fields of sampled documents: which of them hold texts, messages or token ids.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Names of fields that usually hold the text, most usual first.
const TEXTS: [&str; 13] = [
    "text",
    "content",
    "document",
    "body",
    "article",
    "raw_content",
    "page_content",
    "markdown",
    "passage",
    "story",
    "abstract",
    "code",
    "caption",
];
/// Names of fields that hold token ids.
const IDS: [&str; 4] = ["input_ids", "token_ids", "tokens", "ids"];
/// Least mean bytes of a text whose field has another name: shorter ones are labels.
const TEXT_BYTES_MIN: f64 = 20.0;

/// The values of one field in all documents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FieldSummary {
    pub(super) name: String,
    /// Number of documents in which it is a text, a list of messages, a list of ids.
    pub(super) texts: usize,
    pub(super) messages: usize,
    pub(super) ids: usize,
    /// Bytes of all its texts.
    bytes: usize,
    /// Number of texts that are one word, as an address or a digest is.
    words: usize,
    /// The JSON type of its first value.
    kind: &'static str,
}

impl FieldSummary {
    /// Returns the mean number of bytes of its texts.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.texts.max(1) as f64
    }

    fn is_long(&self) -> bool {
        let long = self.mean_bytes() >= TEXT_BYTES_MIN && self.words < self.texts;
        long || TEXTS.contains(&self.name.as_str())
    }
}

/// All fields of some documents.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields {
    pub(super) documents: usize,
    fields: Vec<FieldSummary>,
}

impl Fields {
    /// Returns the fields of `documents`, in the order of their names.
    pub(super) fn of<'d>(documents: impl IntoIterator<Item = &'d Map<String, Value>>) -> Self {
        let mut fields: BTreeMap<&str, FieldSummary> = BTreeMap::new();
        let mut number = 0;
        for document in documents {
            number += 1;
            for (name, value) in document {
                let own = fields.entry(name).or_insert_with(|| FieldSummary {
                    name: name.clone(),
                    kind: kind(value),
                    ..FieldSummary::default()
                });
                own.add(value);
            }
        }
        Self {
            documents: number,
            fields: fields.into_values().collect(),
        }
    }

    /// Returns the field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&FieldSummary> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns whether at least half of the documents are such, by this number of them.
    pub(super) fn is_most(&self, number: usize) -> bool {
        number > 0 && 2 * number >= self.documents
    }

    /// Returns the first of `names` whose values are texts.
    pub(super) fn text_named(&self, names: &[&str]) -> Option<&FieldSummary> {
        let mut named = names.iter().filter_map(|name| self.get(name));
        named.find(|field| self.is_most(field.texts))
    }

    /// Returns the fields with texts, the likeliest first: those of known names, then the longest texts.
    pub(super) fn texts(&self) -> Vec<&FieldSummary> {
        let texts = self.fields.iter();
        let mut texts: Vec<&FieldSummary> = texts
            .filter(|field| self.is_most(field.texts) && field.is_long())
            .collect();
        texts.sort_by(|a, b| {
            let rank = |field: &FieldSummary| TEXTS.iter().position(|name| *name == field.name);
            let known = |field| rank(field).unwrap_or(TEXTS.len());
            let longer = b.mean_bytes().total_cmp(&a.mean_bytes());
            known(a).cmp(&known(b)).then(longer)
        });
        texts
    }

    /// Returns whether the field has one of the names that texts usually have.
    pub(super) fn is_known_text(field: &FieldSummary) -> bool {
        TEXTS.contains(&field.name.as_str())
    }

    /// Returns the fields with lists of messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = &FieldSummary> {
        let fields = self.fields.iter();
        fields.filter(|field| self.is_most(field.messages))
    }

    /// Returns the field with lists of token ids, by its name: masks and labels are lists of numbers too.
    pub(super) fn ids(&self) -> Option<&FieldSummary> {
        let mut named = IDS.iter().filter_map(|name| self.get(name));
        named.find(|field| self.is_most(field.ids))
    }

    /// Returns the names and types of the fields, for a message.
    pub(super) fn described(&self) -> String {
        let named = self.fields.iter().take(12);
        let named: Vec<String> = named
            .map(|field| format!("{} ({})", field.name, field.kind))
            .collect();
        named.join(", ")
    }
}

impl FieldSummary {
    fn add(&mut self, value: &Value) {
        if let Some(text) = value.as_str() {
            self.texts += 1;
            self.bytes += text.len();
            // Scripts without spaces have words of other characters than ASCII.
            let is_word = text.is_ascii() && !text.contains(char::is_whitespace);
            self.words += usize::from(is_word);
        }
        self.messages += usize::from(messages(value).is_some());
        self.ids += usize::from(ids(value).is_some());
    }
}

/// Returns the messages of a conversation: objects in a list, or in the JSON of a text.
pub(super) fn messages(value: &Value) -> Option<Vec<Map<String, Value>>> {
    let parsed;
    let list = match value {
        Value::Array(list) => list,
        Value::String(text) if text.trim_start().starts_with('[') => {
            parsed = serde_json::from_str::<Vec<Value>>(text).ok()?;
            &parsed
        }
        _ => return None,
    };
    let objects = list.iter().map(|message| message.as_object().cloned());
    let objects: Vec<_> = objects.collect::<Option<_>>()?;
    let named = |message: &Map<String, Value>| {
        let has = |name| message.contains_key(name);
        (has("role") && (has("content") || has("tool_calls"))) || (has("from") && has("value"))
    };
    (!objects.is_empty() && objects.iter().all(named)).then_some(objects)
}

/// Returns the token ids of a list of whole numbers.
pub(super) fn ids(value: &Value) -> Option<Vec<u64>> {
    let list = value.as_array().filter(|list| !list.is_empty())?;
    list.iter().map(Value::as_u64).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(documents: &[Value]) -> Fields {
        Fields::of(
            documents
                .iter()
                .map(|document| document.as_object().unwrap()),
        )
    }

    #[test]
    fn a_known_name_comes_before_a_longer_text() {
        let long = "a long text ".repeat(9);
        let found = fields(&[
            json!({"abstract": long, "text": "short", "label": "cat", "url": "u".repeat(99)}),
        ]);
        let names: Vec<&str> = found.texts().iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["text", "abstract"]);
    }

    #[test]
    fn of_unknown_names_the_longest_mean_text_comes_first() {
        let found = fields(&[
            json!({"a": "a text of more than twenty bytes", "b": "b ".repeat(45)}),
            json!({"a": "a ".repeat(100), "b": "b ".repeat(10)}),
        ]);
        let names: Vec<&str> = found.texts().iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_text_that_most_documents_lack_is_none() {
        let found = fields(&[json!({"text": "x"}), json!({}), json!({"text": null})]);
        assert_eq!(found.texts(), Vec::<&FieldSummary>::new());
        assert_eq!(found.described(), "text (text)");
    }

    #[test]
    fn messages_are_recognised_also_as_the_json_of_a_text() {
        let list = json!([{"role": "user", "content": "hi"}]);
        let shared = json!([{"from": "human", "value": "hi"}]);
        for value in [list.clone(), shared, json!(list.to_string())] {
            assert_eq!(messages(&value).unwrap().len(), 1, "{value}");
        }
        for value in [
            json!([]),
            json!([1]),
            json!([{"role": "user"}]),
            json!("[x"),
        ] {
            assert_eq!(messages(&value), None, "{value}");
        }
        assert_eq!(ids(&json!([1, 2])), Some(vec![1, 2]));
        assert_eq!(ids(&json!([1.5])), None);
    }
}
