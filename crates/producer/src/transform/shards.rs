//! From the sample of a tar to the unit of its file that holds a text or a conversation: a text alone, or a JSON object as
//! in a line of JSONL.

use crate::sources::{Cell, Format, Place, TextField, Unit};

/// Returns the unit, its format, and the JSON field that holds a text. `field` is `source.field`; with a `template` the
/// object is a conversation.
pub(crate) fn document(field: &str, template: bool, sample: Unit) -> (Format, &str, Unit) {
    let text = match sample.cells.into_iter().next() {
        Some(Cell::Bytes(text)) => text,
        _ => Vec::new(),
    };
    let unit = Unit {
        // As at the beginning of a file: it may have a byte order mark.
        place: Place::of_file(sample.place.file),
        raw: sample.raw.map(|_| text.into()),
        cells: Vec::new(),
    };
    match TextField::new(field).json {
        _ if template => (Format::Jsonl, field, unit),
        Some(key) => (Format::Jsonl, key, unit),
        None => (Format::Text, field, unit),
    }
}
