//! Messages about unknown keys and values of a wrong type, in words of the file instead of the program's types.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::paths::paths;

/// Returns the message for a value that serde refused with `message` at `place`. `known` is the default of the key.
pub(super) fn reword(
    message: &str,
    value: &Spanned<DeValue<'_>>,
    place: &Range<usize>,
    known: Option<&Value>,
) -> String {
    if let Some(text) = variant(message).or_else(|| field(message)) {
        return text;
    }
    let value = innermost(value, place).get_ref();
    if message.contains("did not match any variant of untagged enum") {
        let example = known.and_then(Value::as_str).unwrap_or_default();
        let found = found(value);
        return format!("expected a string with a unit, found {found}; write it as \"{example}\"");
    }
    let Some((invalid, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    // An error about an item of a list, whose place is unknown, names that item, not the whole value.
    let item = matches!(value, DeValue::Array(_)) && !invalid.contains("sequence");
    if !(invalid.starts_with("invalid type: ") || invalid.starts_with("invalid value: ")) || item {
        return message.to_owned();
    }
    let kind = Kind::from_expected(expected);
    let words = kind.words(value, expected);
    let remedy = kind.remedy(value, known);
    format!("expected {words}, found {}{remedy}", found(value))
}

/// Returns the item of a list, or the value of an inner table, that is at `place`.
fn innermost<'v, 'i>(
    value: &'v Spanned<DeValue<'i>>,
    place: &Range<usize>,
) -> &'v Spanned<DeValue<'i>> {
    let within = |inner: &&'v Spanned<DeValue<'i>>| {
        let span = inner.span();
        inner.span() != value.span() && span.start <= place.start && place.end <= span.end
    };
    let inner = match value.get_ref() {
        DeValue::Array(items) => items.iter().find(within),
        DeValue::Table(table) => table.iter().map(|(_, inner)| inner).find(within),
        _ => None,
    };
    inner.map_or(value, |inner| innermost(inner, place))
}

/// The kinds of values that a key can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Number,
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
            "f32" | "f64" => Self::Number,
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
            Self::Number => "a number".into(),
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
            (Self::Number, DeValue::String(text)) => match number(text) {
                Some(number) => format!("; write it without quotes: {number}"),
                None => String::new(),
            },
            (Self::Integer, DeValue::Float(float)) => whole(float.as_str()),
            (Self::Boolean, DeValue::String(text)) => match boolean(text) {
                Some(boolean) => format!("; write it without quotes: {boolean}"),
                None => "; write true or false, without quotes".to_owned(),
            },
            (Self::Boolean, DeValue::Integer(number)) if number.as_str() == "0" => {
                "; write false".to_owned()
            }
            (Self::Boolean, DeValue::Integer(number)) if number.as_str() == "1" => {
                "; write true".to_owned()
            }
            (
                Self::Text,
                DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_),
            ) => "; write it in quotes".to_owned(),
            (Self::Text, DeValue::Array(items)) if items.len() == 1 => {
                "; write it without brackets".to_owned()
            }
            (Self::List, DeValue::String(text)) => format!("; write it in brackets: [\"{text}\"]"),
            (Self::List, DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => {
                format!("; write it in brackets: [{}]", found(value))
            }
            (Self::Table, _) => {
                let keys: Vec<&str> = known
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .map(|(key, _)| key.as_str())
                    .collect();
                if keys.is_empty() {
                    String::new()
                } else {
                    format!("; its keys are {}", keys.join(", "))
                }
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

/// Returns the remedy for a fraction in place of a whole number.
fn whole(float: &str) -> String {
    let value: Option<f64> = float.replace('_', "").parse().ok();
    match value.filter(|value| value.fract() == 0.0 && value.abs() < 1e15) {
        Some(value) => format!("; write {value:.0}"),
        None => String::new(),
    }
}

/// Returns the number in a text, without a percent sign.
fn number(text: &str) -> Option<&str> {
    let text = text.trim().trim_end_matches('%').trim_end();
    text.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())?;
    Some(text)
}

/// Returns the boolean that a word of another language means.
pub(super) fn boolean(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Some(true),
        "false" | "no" | "off" | "n" => Some(false),
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
    let near = dtype(word)
        .filter(|one| known.contains(one))
        .or_else(|| nearest(word, known.iter().copied()))
        .map_or(String::new(), |one| format!("; did you mean \"{one}\"?"));
    Some(format!(
        "\"{word}\" is not one of {}{near}",
        quoted.join(", ")
    ))
}

/// Returns the message for a key of a list's table that is unknown, missing or given twice.
fn field(message: &str) -> Option<String> {
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let (word, rest) = rest.split_once('`')?;
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let near = nearest(word, known.iter().copied())
            .map_or(String::new(), |one| format!("; did you mean `{one}`?"));
        return Some(format!(
            "`{word}` is not a key of this table; known here: {}{near}",
            known.join(", ")
        ));
    }
    let missing = message.strip_prefix("missing field `")?;
    let name = missing.split('`').next()?;
    Some(format!("`{name}` must be given in this table"))
}

/// Returns `; did you mean ...?`, from the same table first, then from any other; else the known keys.
pub(super) fn suggestion(key: &str, schema: &Value) -> String {
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

/// Returns our name of a type of numpy and torch.
fn dtype(word: &str) -> Option<&'static str> {
    Some(
        match word.trim_start_matches("torch.").trim_start_matches("np.") {
            "bool" => "BOOL",
            "uint8" | "byte" => "U8",
            "int8" => "I8",
            "uint16" => "U16",
            "int16" | "short" => "I16",
            "float16" | "half" => "F16",
            "bfloat16" => "BF16",
            "uint32" => "U32",
            "int32" | "int" => "I32",
            "float32" | "float" => "F32",
            "uint64" => "U64",
            "int64" | "long" => "I64",
            "float64" | "double" => "F64",
            _ => return None,
        },
    )
}
