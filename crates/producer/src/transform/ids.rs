//! From a unit to the token ids that it holds ready made. Pure; runs on the tokenizing threads.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json;
use super::text::{BOM, fields};
use crate::packing::Content;
use crate::sources::{Cell, Reason, Unit, UnitKind};

/// The vocabulary that ids must belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vocabulary {
    /// All ids are below this.
    pub id_bound: u32,
    /// The token that begins a document, if any.
    pub begin_token: Option<u32>,
    /// The token that ends a document.
    pub end_token: u32,
}

/// Returns the tokens of the document in `unit`; `None` for a blank line. `field` is the JSON field that holds them. With
/// a `mask`, of a mark for each id, they are a conversation that ends itself: a begin or end token that is missing is
/// added, and not learned.
pub fn content(
    field: &str,
    vocabulary: Vocabulary,
    unit: Unit,
    mask: Option<Vec<bool>>,
) -> Result<Option<Content>, Reason> {
    let Some(mut ids) = ids(field, vocabulary, unit)? else {
        return Ok(None);
    };
    let marked = ids.len();
    let own_end = ids.pop_if(|last| *last == vocabulary.end_token).is_some();
    if ids.is_empty() {
        return Err(Reason::Empty);
    }
    let wanted_begin = vocabulary.begin_token;
    let begin = wanted_begin.filter(|begin| ids.first() != Some(begin));
    if let Some(begin) = begin {
        ids.insert(0, begin);
    }
    let Some(mut learned) = mask else {
        return Ok(Some(Content::Tokens(ids)));
    };
    if learned.len() != marked {
        let marks = learned.len();
        return Err(Reason::MaskLength { marks, ids: marked });
    }
    if begin.is_some() {
        learned.insert(0, false);
    }
    ids.push(vocabulary.end_token);
    if !own_end {
        learned.push(false);
    }
    Ok(Some(Content::Turns(ids, learned)))
}

/// Returns all ids of a document.
fn ids(field: &str, vocabulary: Vocabulary, unit: Unit) -> Result<Option<Vec<u32>>, Reason> {
    let raw = unit.raw?;
    let numbers = match unit.kind {
        UnitKind::Json => match line(&raw, field, unit.place.unit == 0)? {
            Some(numbers) => numbers,
            None => return Ok(None),
        },
        UnitKind::Row | UnitKind::Ids => match unit.cells.into_iter().next() {
            Some(Cell::Ints(numbers)) => numbers,
            Some(Cell::Unsigned(numbers)) => return known(&numbers, vocabulary).map(Some),
            Some(Cell::Floats(_)) => return Err(not_ids("a column of fractions")),
            Some(Cell::Bytes(_) | Cell::File(_)) => {
                return Err(not_ids("a column of text or bytes"));
            }
            None => return Err(Reason::Empty),
        },
        UnitKind::Line | UnitKind::Text | UnitKind::Array | UnitKind::Sample => {
            return Err(Reason::NotIdFile);
        }
    };
    known(&numbers, vocabulary).map(Some)
}

/// Returns the numbers as ids, all of which must belong to the vocabulary.
fn known<N>(numbers: &[N], vocabulary: Vocabulary) -> Result<Vec<u32>, Reason>
where
    N: Copy + fmt::Display + TryInto<u32>,
{
    let bound = vocabulary.id_bound;
    let mut ids = Vec::with_capacity(numbers.len());
    for (at, &id) in numbers.iter().enumerate() {
        let inside = id.try_into().ok().filter(|id| *id < bound);
        ids.push(inside.ok_or_else(|| Reason::Id {
            id: id.to_string(),
            at,
            bound,
        })?);
    }
    Ok(ids)
}

fn not_ids(found: impl Into<String>) -> Reason {
    Reason::NotIds {
        found: found.into(),
    }
}

fn line(raw: &[u8], field: &str, first: bool) -> Result<Option<Vec<i64>>, Reason> {
    let text = raw.strip_prefix(BOM).filter(|_| first).unwrap_or(raw);
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let found = json::from_slice_seed(text, Line(field)).map_err(|e| Reason::broken_json(&e))?;
    match found {
        Some(List::Ids(ids)) => Ok(Some(ids)),
        Some(List::Other(found)) => Err(not_ids(format!("field \"{field}\", {found}"))),
        None => Err(Reason::MissingField {
            field: field.to_owned(),
            fields: fields(&String::from_utf8_lossy(raw)),
        }),
    }
}

/// The value of the field.
enum List {
    Ids(Vec<i64>),
    /// The first item that is none, or the kind of the value.
    Other(String),
}

/// A line: an object, whose other fields are skipped unread. Of a repeated field the last one counts, as for text.
struct Line<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Line<'_> {
    type Value = Option<List>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Line<'_> {
    type Value = Option<List>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with a list of ids in \"{}\"", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == self.0 {
                found = Some(map.next_value_seed(ListSeed)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

struct ListSeed;

impl<'de> DeserializeSeed<'de> for ListSeed {
    type Value = List;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<List, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List, A::Error> {
        let mut ids = Vec::new();
        while let Some(item) = seq.next_element::<serde_json::Value>()? {
            if let Some(id) = item.as_i64() {
                ids.push(id);
                continue;
            }
            let mut shown = item.to_string();
            shown.truncate(shown.floor_char_boundary(40));
            let other = List::Other(format!("whose item {} is {shown}", ids.len()));
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(other);
        }
        Ok(List::Ids(ids))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(List::Other("an object".to_owned()))
    }

    fn visit_str<E>(self, _: &str) -> Result<List, E> {
        Ok(List::Other("a string".to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<List, E> {
        Ok(List::Other("a boolean".to_owned()))
    }

    fn visit_unit<E>(self) -> Result<List, E> {
        Ok(List::Other("null".to_owned()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<List, E> {
        Ok(List::Other("a number".to_owned()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<List, E> {
        Ok(List::Other("a number".to_owned()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<List, E> {
        Ok(List::Other("a number".to_owned()))
    }
}

#[cfg(test)]
mod tests;
