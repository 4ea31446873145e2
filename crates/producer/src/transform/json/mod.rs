//! JSON as Python's `json` reads it. A document is read strictly first, since that is fast and nearly always enough; one that
//! fails is read again with what Python accepts beyond the standard: NaN, Infinity and -Infinity, and halves of surrogate
//! pairs, which become U+FFFD.

use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny};
use serde_json::Error;

use self::reader::{NUMBER, NonFinite, Reader};

mod beyond;
mod reader;

pub(crate) use beyond::Beyond;

/// Begins a document that is read as Python reads it; no JSON begins so.
const LENIENT: u8 = 0;

/// Reads a document: strictly, or as Python does when it was [marked](mark).
pub(crate) fn from_slice<T: DeserializeOwned>(raw: &[u8]) -> Result<T, Error> {
    match raw.split_first() {
        Some((&LENIENT, rest)) => {
            let mut reader = Reader::new(rest, NonFinite::Float);
            let value = T::deserialize(&mut reader)?;
            reader.end()?;
            Ok(value)
        }
        _ => serde_json::from_slice(raw),
    }
}

/// The same for values, in which numbers that are not finite are strings; see [`is_number`].
pub(crate) fn value(raw: &[u8]) -> Result<serde_json::Value, Error> {
    match raw.split_first() {
        Some((&LENIENT, rest)) => {
            let mut reader = Reader::new(rest, NonFinite::Text);
            let value = serde::Deserialize::deserialize(&mut reader)?;
            reader.end()?;
            Ok(value)
        }
        _ => serde_json::from_slice(raw),
    }
}

/// The same for a document that no one has marked.
pub(crate) fn value_as_python(raw: &[u8]) -> Result<serde_json::Value, Error> {
    value(raw).or_else(|why| match mark(raw) {
        Some((marked, _)) => value(&marked),
        None => Err(why),
    })
}

/// Returns whether a text of such a value stands for a number.
pub(crate) fn is_number(text: &str) -> bool {
    text.starts_with(NUMBER)
}

/// Returns the number that a text stands for; `None` for one that no double holds.
pub(crate) fn number(text: &str) -> Option<f64> {
    match text.strip_prefix(NUMBER)? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// The same by a seed, which is used for one reading.
pub(crate) fn from_slice_seed<'de, S>(raw: &'de [u8], seed: S) -> Result<S::Value, Error>
where
    S: DeserializeSeed<'de>,
{
    if let Some((&LENIENT, rest)) = raw.split_first() {
        let mut reader = Reader::new(rest, NonFinite::Float);
        let value = seed.deserialize(&mut reader)?;
        reader.end()?;
        return Ok(value);
    }
    let mut parser = serde_json::Deserializer::from_slice(raw);
    let value = seed.deserialize(&mut parser)?;
    parser.end().map(|()| value)
}

/// Returns whether the document is to be read as Python does.
pub(crate) fn is_marked(raw: &[u8]) -> bool {
    raw.first() == Some(&LENIENT)
}

/// Returns whether Python would read it.
pub(crate) fn is_json(raw: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(raw).is_ok() || mark(raw).is_some()
}

/// Returns the document with a mark that it is read as Python does, and what it has beyond the standard; `None` where Python
/// would not read it, or reads it no other way.
pub(crate) fn mark(raw: &[u8]) -> Option<(Vec<u8>, Beyond)> {
    let mut reader = Reader::new(raw, NonFinite::Float);
    serde::Deserialize::deserialize(&mut reader)
        .and_then(|IgnoredAny| reader.end())
        .ok()?;
    let marked = [&[LENIENT], raw].concat();
    (!reader.beyond.is_none()).then_some((marked, reader.beyond))
}

#[cfg(test)]
mod tests;
