//! Rows as JSON objects, like the lines of a JSONL file.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;

use super::Reason;

/// The columns of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationColumns {
    /// Columns that the file must have: those with messages.
    pub wanted: Vec<String>,
    /// Columns that are read if the file has them.
    pub optional: Vec<String>,
    /// Field of a message that stays when it is null.
    pub content_key: String,
    /// Rows stay as they are: nulls, texts that look like JSON, and bytes, which become base64 below `__bytes__`.
    pub verbatim: bool,
    /// The settings that name the wanted columns, for messages.
    pub setting: &'static str,
}

/// A value of a column, of any format of rows.
pub(super) trait RowValue {
    fn is_null(&self) -> bool;

    /// Returns the text, or the bytes as one; `None` of any other value.
    fn as_text(&self) -> Result<Option<Cow<'_, str>>, Reason>;

    /// Appends the value as JSON.
    fn put(&self, json: &mut String, columns: &ConversationColumns) -> Result<(), Reason>;
}

/// Returns a row as a JSON object.
pub(super) fn object<'a, V: RowValue>(
    fields: impl IntoIterator<Item = (&'a str, V)>,
    columns: &ConversationColumns,
) -> Result<Vec<u8>, Reason> {
    let mut json = String::from("{");
    for (name, field) in fields {
        if field.is_null() && !columns.verbatim {
            if columns.wanted.iter().any(|wanted| wanted == name) {
                return Err(Reason::Null);
            }
            continue;
        }
        separate(&mut json);
        put_text(&mut json, name);
        json.push(':');
        let text = if columns.verbatim {
            None
        } else {
            field.as_text()?
        };
        match text {
            Some(text) => put_json_or_text(&mut json, &text),
            None => field.put(&mut json, columns)?,
        }
    }
    json.push('}');
    Ok(json.into_bytes())
}

/// Returns bytes as a text.
pub(super) fn text_of(bytes: &[u8]) -> Result<Cow<'_, str>, Reason> {
    let text = std::str::from_utf8(bytes).map_err(|why| Reason::InvalidUtf8 {
        at: why.valid_up_to(),
    });
    text.map(Cow::from)
}

/// Appends the comma that an item needs, unless it is the first.
pub(super) fn separate(json: &mut String) {
    if !json.ends_with(['{', '[', ':']) {
        json.push(',');
    }
}

/// Appends a text that is a list or an object in JSON as it is, and any other as a string.
fn put_json_or_text(json: &mut String, text: &str) {
    let nested = text.trim_start().starts_with(['[', '{']);
    if nested && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        json.push_str(text);
    } else {
        put_text(json, text);
    }
}

pub(super) fn put_text(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

/// Appends bytes as base64 below `__bytes__`.
pub(super) fn put_bytes(json: &mut String, bytes: &[u8]) {
    json.push_str("{\"__bytes__\":");
    put_text(json, &STANDARD.encode(bytes));
    json.push('}');
}

pub(super) fn put_number(json: &mut String, n: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(json, "{n}");
}

/// Appends a number with a fraction; JSON has none of NaN and infinities.
pub(super) fn put_float(json: &mut String, n: f64) {
    json.push_str(&serde_json::Value::from(n).to_string());
}
