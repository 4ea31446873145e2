//! From the bytes of a unit to the text of a document. Pure; runs on the tokenizing threads.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json;
use crate::sources::{Reason, UnitKind};

mod quick;

/// The byte order mark that a UTF-8 file may begin with.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// A message names at most this many fields of an object.
const FIELDS_NAMED: usize = 6;

/// Most bytes that a thread keeps for the texts of lines.
const SCRATCH_BYTES: usize = 1 << 20;

thread_local! {
    /// The text of a line; memory that was used just before is in the caches.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns what `then` makes of the text of the document in `raw`; `None` for a blank line. `field` is the JSON field that
/// holds it.
pub fn decode<T>(
    kind: UnitKind,
    field: &str,
    first: bool,
    raw: &[u8],
    then: impl FnOnce(&str) -> T,
) -> Result<Option<T>, Reason> {
    if matches!(kind, UnitKind::Array | UnitKind::Ids | UnitKind::Sample) {
        return Err(Reason::NotText);
    }
    let raw = match raw.strip_prefix(BOM) {
        Some(rest) if first => rest,
        _ => raw,
    };
    let by_line = matches!(kind, UnitKind::Json | UnitKind::Line);
    if by_line && raw.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let some = |text: &str| match text {
        "" => Err(Reason::Empty),
        text => Ok(Some(then(text))),
    };
    if kind != UnitKind::Json {
        return some(utf8(raw)?);
    }
    let mut scratch = SCRATCH.take();
    let made = match quick::field(raw, field, &mut scratch) {
        Some(text) => some(text),
        None => some(&parsed_field(utf8(raw)?, field)?),
    };
    if scratch.len() <= SCRATCH_BYTES {
        SCRATCH.set(scratch);
    }
    made
}

/// Returns the text in `raw`.
fn utf8(raw: &[u8]) -> Result<&str, Reason> {
    simdutf8::basic::from_utf8(raw).map_err(|_| {
        // Only the slower check finds the place.
        let at = std::str::from_utf8(raw).map_or_else(|e| e.valid_up_to(), str::len);
        Reason::InvalidUtf8 { at }
    })
}

/// Returns the string under `field` of the JSON object in `line`; of a repeated field the last one, as most JSON readers
/// do. The whole line is checked, also after the field.
fn parsed_field(line: &str, field: &str) -> Result<String, Reason> {
    let found = json::from_slice_seed(line.as_bytes(), FieldSeed(Some(field)))
        .map_err(|e| Reason::broken_json(&e))?;
    let field = field.to_owned();
    match found {
        Found::Text(text) => Ok(text),
        Found::Other(found) => Err(Reason::NotAString { field, found }),
        Found::Absent => Err(Reason::MissingField {
            field,
            fields: fields(line),
        }),
        Found::NotAnObject(found) => Err(Reason::NotAnObject { field, found }),
    }
}

/// Returns some fields of the JSON object in `line`, in alphabetical order, for a message.
pub(super) fn fields(line: &str) -> String {
    let object = match json::value(line.as_bytes()) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    };
    let names = object.keys().take(FIELDS_NAMED);
    let names: Vec<String> = names.map(|name| format!("\"{name:.40}\"")).collect();
    match (names.len(), object.len()) {
        (0, _) => "no fields".to_owned(),
        (some, all) if some < all => format!("{} and {} more", names.join(", "), all - some),
        _ => names.join(", "),
    }
}

enum Found {
    Text(String),
    Other(&'static str),
    Absent,
    NotAnObject(&'static str),
}

/// Visits the line, an object whose other fields are skipped unread; without a name, the value of the field.
#[derive(Clone, Copy)]
struct FieldSeed<'a>(Option<&'a str>);

impl FieldSeed<'_> {
    fn other(self, found: &'static str) -> Found {
        if self.0.is_some() {
            Found::NotAnObject(found)
        } else {
            Found::Other(found)
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Found, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with a string")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let Some(field) = self.0 else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Found::Other("an object"));
        };
        let mut found = Found::Absent;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == field {
                found = map.next_value_seed(FieldSeed(None))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Found, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.other("an array"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Found, E> {
        Ok(match self.0 {
            Some(_) => Found::NotAnObject("a string"),
            None => Found::Text(text.to_owned()),
        })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(self.other("a boolean"))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(self.other("null"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
        Ok(self.other("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
        Ok(self.other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(self.other("a number"))
    }
}

#[cfg(test)]
mod tests;
