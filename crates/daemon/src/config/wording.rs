//! Messages about values of a wrong type, in words of the file instead of the program's types.

use std::borrow::Cow;

use serde_json::Value;
use toml::de::DeValue;

/// Returns the message for a value that serde refused with `message`. `known` is the default of the key.
pub(super) fn reword(message: &str, value: &DeValue<'_>, known: Option<&Value>) -> String {
    if let Some(text) = variant(message) {
        return text;
    }
    if message.contains("did not match any variant of untagged enum") {
        let example = known.and_then(Value::as_str).unwrap_or_default();
        let found = found(value);
        return format!("expected a string with a unit, found {found}; write it as \"{example}\"");
    }
    let Some((invalid, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    // An error about an element of a list names that element, not the whole value.
    let element = matches!(value, DeValue::Array(_)) && !invalid.contains("sequence");
    if !(invalid.starts_with("invalid type: ") || invalid.starts_with("invalid value: ")) || element
    {
        return message.to_owned();
    }
    let kind = Kind::from_expected(expected);
    let words = kind.words(value, expected);
    let remedy = kind.remedy(value, known);
    format!("expected {words}, found {}{remedy}", found(value))
}

/// Returns the message for a syntax error.
pub(super) fn syntax(message: &str) -> String {
    let remedy = match message.trim() {
        "duplicate key" => "; remove one of the two",
        _ => "",
    };
    format!("syntax: {}{remedy}", message.trim_end())
}

/// Returns the language of a text that is not TOML, where its first line shows it.
pub(super) fn other_language(text: &str) -> Option<&'static str> {
    let mut lines = text.lines().map(str::trim_end);
    let first =
        lines.find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))?;
    if first.trim_start().starts_with('{') {
        return Some("JSON");
    }
    let (key, rest) = first.split_once(':')?;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let yaml = first == "---" || !key.is_empty() && key.chars().all(word);
    (yaml && (rest.is_empty() || rest.starts_with(' '))).then_some("YAML")
}

/// The kinds of values that a key can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Boolean,
    Text,
    List,
    Table,
    Other,
}

impl Kind {
    /// Reads serde's description of a type.
    fn from_expected(expected: &str) -> Self {
        match expected {
            "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => {
                Self::Integer
            }
            "a boolean" => Self::Boolean,
            "a string" | "string" | "a character" => Self::Text,
            "a sequence" => Self::List,
            "a map" => Self::Table,
            _ if expected.starts_with("struct ") => Self::Table,
            // A list of keywords: `string or table` of an enum.
            "string or table" => Self::Text,
            _ => Self::Other,
        }
    }

    fn words<'e>(self, value: &DeValue<'_>, expected: &'e str) -> Cow<'e, str> {
        match self {
            Self::Integer => match integer(value) {
                Some(number) if number < 0 => "a whole number of at least 0".into(),
                Some(_) => largest(expected).map_or("a whole number".into(), |largest| {
                    format!("a whole number up to {largest}").into()
                }),
                None => "a whole number".into(),
            },
            Self::Boolean => "true or false".into(),
            Self::Text => "a string".into(),
            Self::List => "a list".into(),
            Self::Table => "a table".into(),
            Self::Other => expected.into(),
        }
    }

    fn remedy(self, value: &DeValue<'_>, known: Option<&Value>) -> String {
        match (self, value) {
            (Self::Integer, DeValue::String(text)) if is_number(text) => {
                format!("; write it without quotes: {}", text.trim())
            }
            (Self::Integer, DeValue::Float(float)) => {
                let float = float.as_str();
                let whole = float.split('.').next().unwrap_or(float);
                format!("; write {whole}")
            }
            (Self::Boolean, DeValue::String(text)) if text == "true" || text == "false" => {
                format!("; write it without quotes: {text}")
            }
            (Self::Text, DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => {
                "; write it in quotes".to_owned()
            }
            (Self::List, DeValue::String(text)) => format!("; write it in brackets: [\"{text}\"]"),
            (Self::Table, _) => {
                let keys = known.and_then(Value::as_object).into_iter().flatten();
                let keys: Vec<&str> = keys.map(|(key, _)| key.as_str()).collect();
                format!("; its keys are {}", keys.join(", "))
            }
            _ => String::new(),
        }
    }
}

fn integer(value: &DeValue<'_>) -> Option<i128> {
    match value {
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
}

/// Returns the largest number of an unsigned type.
fn largest(expected: &str) -> Option<u64> {
    match expected {
        "u8" => Some(u8::MAX.into()),
        "u16" => Some(u16::MAX.into()),
        "u32" => Some(u32::MAX.into()),
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

/// Describes a value as the file has it.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string \"{text}\""),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Returns the one of `known` that `word` was probably meant to be.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let distances = known.map(|one| (strsim::damerau_levenshtein(one, word), one));
    let near = distances.min();
    near.filter(|(distance, _)| *distance <= 2.max(word.len() / 3))
        .map(|(_, one)| one)
}

/// Returns the message for a word that is none of the known ones, with the nearest.
fn variant(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown variant `")?;
    let (word, rest) = rest.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let quoted: Vec<String> = known.iter().map(|one| format!("\"{one}\"")).collect();
    let near = nearest(word, known.iter().copied());
    let near = near.map_or(String::new(), |one| format!("; did you mean \"{one}\"?"));
    Some(format!(
        "\"{word}\" is not one of {}{near}",
        quoted.join(", ")
    ))
}
