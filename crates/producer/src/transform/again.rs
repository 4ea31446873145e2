//! From a unit to its document: one that fails is read again as Python reads JSON, or its first bytes explain the failure.

use bytes::Bytes;
use memchr::memmem;

use super::DocumentTransform;
use super::json::{self, Beyond};
use super::text::BOM;
use crate::packing::{ColumnValues, Content};
use crate::sources::{Cell, Reason, Unit, UnitKind};

/// A document before it gets its place.
#[derive(Debug)]
pub(crate) struct Transformed {
    pub(crate) content: Content,
    pub(crate) columns: Option<ColumnValues>,
    pub(crate) arrays: Vec<Bytes>,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// The parts of its JSON beyond the standard.
    pub(crate) beyond: Beyond,
    /// Number of tokens that were cut off, because a bin holds no more.
    pub(crate) truncated: u64,
}

impl DocumentTransform {
    /// Returns what the document in `unit` becomes; `Ok(None)` for a blank line. `field` is the JSON field that holds it.
    /// A line beyond standard JSON is read once more, as Python does.
    pub(crate) fn transform(
        &self,
        field: &str,
        mut unit: Unit,
    ) -> Result<Option<Transformed>, Reason> {
        let place = unit.place;
        let kind = unit.kind;
        let raw = unit.raw.clone();
        if kind == UnitKind::Json && raw.as_ref().is_ok_and(|raw| json::is_marked(raw)) {
            return Err(nul());
        }
        let cells = cells(&unit);
        let why = match self.transform_once(field, unit) {
            Err(why) => why,
            made => return made,
        };
        let Ok(raw) = raw else {
            return Err(why);
        };
        let first = place.unit == 0;
        match marked(kind, &why, first, &raw).zip(cells) {
            Some(((marked, beyond), cells)) => {
                unit = Unit {
                    place,
                    kind,
                    raw: Ok(marked.into()),
                    cells,
                };
                let made = self.transform_once(field, unit)?;
                Ok(made.map(|made| Transformed { beyond, ..made }))
            }
            None => Err(explained(kind, why, first, &raw)),
        }
    }
}

/// Returns the cells with which `unit` is read again, which are copied where there are any and its line may need it; `None`
/// where it is not read again.
fn cells(unit: &Unit) -> Option<Vec<Cell>> {
    if unit.kind != UnitKind::Json {
        return None;
    }
    if unit.cells.is_empty() {
        return Some(Vec::new());
    }
    let raw = unit.raw.as_ref().ok()?;
    let holds = |word: &[u8]| memmem::find(raw, word).is_some();
    let may = holds(b"NaN") || holds(b"Infinity") || holds(b"\\u");
    may.then(|| unit.cells.clone())
}

/// Returns the reason for a line that begins with a NUL, which is the mark of lines that are read again.
fn nul() -> Reason {
    Reason::BrokenJson {
        column: 1,
        detail: "expected value, not a NUL".to_owned(),
    }
}

/// Returns the line that failed with `why` in the form in which it is read as Python does; `None` for all other faults.
fn marked(kind: UnitKind, why: &Reason, first: bool, raw: &[u8]) -> Option<(Vec<u8>, Beyond)> {
    let is_json = matches!(why, Reason::BrokenJson { .. }) && kind == UnitKind::Json;
    is_json
        .then(|| json::mark(without_bom(first, raw)))
        .flatten()
}

/// Returns the reason that the first bytes of the file give for the failure, or the same one.
fn explained(kind: UnitKind, why: Reason, first: bool, raw: &[u8]) -> Reason {
    if !first || !matches!(kind, UnitKind::Json | UnitKind::Line | UnitKind::Text) {
        return why;
    }
    if let Some(encoding) = encoding(raw) {
        return Reason::Encoding { encoding };
    }
    if kind != UnitKind::Json {
        return why;
    }
    let text = without_bom(first, raw).trim_ascii();
    match (text, &why) {
        ([b'[', items @ ..], _) if matches!(items.trim_ascii_start(), [] | [b'{', ..]) => {
            Reason::JsonArray
        }
        ([b'{', ..], Reason::BrokenJson { detail, .. }) if detail.starts_with("EOF while") => {
            Reason::IndentedJson
        }
        _ => why,
    }
}

/// Returns the encoding of a file that begins with its mark, unless it is UTF-8.
fn encoding(raw: &[u8]) -> Option<&'static str> {
    match raw {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        _ => None,
    }
}

/// Returns the document `raw` without the mark of UTF-8, which the first one of a file may begin with.
pub(super) fn without_mark_of_utf8(first: bool, raw: Bytes) -> Bytes {
    let mark = raw.len() - without_bom(first, &raw).len();
    raw.slice(mark..)
}

fn without_bom(first: bool, raw: &[u8]) -> &[u8] {
    raw.strip_prefix(BOM).filter(|_| first).unwrap_or(raw)
}
