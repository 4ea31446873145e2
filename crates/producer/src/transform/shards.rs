//! From the sample of a tar to the unit of its file that holds a text or a conversation: a text alone, or a JSON object as
//! in a line of JSONL.

use bytes::Bytes;

use crate::sources::{Cell, Place, TextField, Unit, UnitKind};

/// Returns the unit and the JSON field that holds a text. `field` is `source.field`; with a `template` the object is a
/// conversation.
pub(crate) fn document(field: &str, template: bool, sample: Unit) -> (&str, Unit) {
    let text = match sample.cells.into_iter().next() {
        Some(Cell::Bytes(text)) => text,
        _ => Bytes::new(),
    };
    let json = TextField::new(field).json;
    let unit = Unit {
        // As at the beginning of a file: it may have a byte order mark.
        place: Place::of_file(sample.place.file),
        kind: match json {
            None if !template => UnitKind::Text,
            _ => UnitKind::Json,
        },
        raw: sample.raw.map(|_| text),
        cells: Vec::new(),
    };
    (json.filter(|_| !template).unwrap_or(field), unit)
}
