//! Tables of text, as RFC 4180 describes them: the first record names the columns, and each other one is a document, as
//! a JSON object whose values are texts. Nothing is guessed of their types.

use super::Reason;
use super::unit_reader::{Content, FoundUnit, Opened, Opening, ReadFailure, UnitReader};
use records::{FIELDS_MAX, Fields, Record, Records};

mod records;

/// Most bytes of the names of all columns.
const NAMES_BYTES_MAX: u64 = 1 << 20;

/// Opens a file whose fields are divided by commas.
pub(super) fn open_csv<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    open(opening, b',')
}

/// Opens a file whose fields are divided by tabs.
pub(super) fn open_tsv<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    open(opening, b'\t')
}

fn open<'a>(opening: Opening<'a, '_>, delimiter: u8) -> Opened<'a> {
    let (at, stream) = (opening.at, opening.stream);
    let mut records = Records::new(stream.open_at(0)?, 0, delimiter);
    let header = records.next(NAMES_BYTES_MAX).map_err(ReadFailure::Io)?;
    let Some(header) = header else {
        return Ok(None);
    };
    let names = names(header)?;
    if at.offset > 0 {
        records = Records::new(stream.open_at(at.offset)?, at.offset, delimiter);
    }
    Ok(Some(Box::new(TableUnits {
        names,
        records,
        limit: opening.options.max_document_bytes,
        number: at.unit,
    })))
}

/// Returns the names of the columns, each as JSON.
fn names(header: Record<'_>) -> Result<Vec<String>, Reason> {
    let wrong = |detail: String| Reason::Table { detail };
    let fields = match header {
        Record::Whole(fields) => fields,
        Record::TooLong => {
            return Err(wrong(format!(
                "has more than {FIELDS_MAX} columns, or names of {NAMES_BYTES_MAX} bytes"
            )));
        }
        Record::OpenQuote => return Err(wrong("ends within a quote of its first row".into())),
    };
    let mut names: Vec<String> = Vec::with_capacity(fields.count());
    for name in fields.iter() {
        let name = std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.contains('\0'));
        let Some(name) = name else {
            return Err(wrong("is not in UTF-8; convert it, as iconv does".into()));
        };
        // csv_core keeps the mark that some programs write before UTF-8.
        let name = serde_json::Value::from(name.trim_start_matches('\u{feff}')).to_string();
        if names.contains(&name) {
            return Err(wrong(format!(
                "has two columns {name}; give each a name of its own"
            )));
        }
        names.push(name);
    }
    Ok(names)
}

/// The records of a file behind its first.
struct TableUnits {
    /// The names of the columns, each as JSON.
    names: Vec<String>,
    records: Records,
    limit: u64,
    number: u64,
}

impl UnitReader for TableUnits {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        loop {
            let (number, offset) = self.place();
            let ours = owned(number);
            let limit = if ours { self.limit } else { 0 };
            let record = self.records.next(limit).map_err(ReadFailure::Io)?;
            let Some(record) = record else {
                return Ok(None);
            };
            self.number += 1;
            if ours {
                return Ok(Some(FoundUnit {
                    number,
                    offset,
                    content: content(&self.names, &record, limit),
                }));
            }
        }
    }

    fn place(&self) -> (u64, u64) {
        // As places at the beginning of a file have it.
        let offset = if self.number == 0 {
            0
        } else {
            self.records.offset()
        };
        (self.number, offset)
    }
}

fn content(names: &[String], record: &Record<'_>, limit: u64) -> Result<Content, Reason> {
    match record {
        Record::Whole(fields) => object(names, fields),
        Record::TooLong => Err(Reason::TooLong { limit }),
        Record::OpenQuote => Err(Reason::TableRow {
            detail:
                "the file ends within a quote; close it, or double each quote in a quoted value"
                    .into(),
        }),
    }
}

/// Returns a record as a JSON object.
fn object(names: &[String], fields: &Fields<'_>) -> Result<Content, Reason> {
    let (has, needs) = (fields.count(), names.len());
    if has != needs {
        return Err(Reason::TableRow {
            detail: format!(
                "it has {has} values, and the first row {needs} names; quote values with commas, tabs or line breaks"
            ),
        });
    }
    let mut json = String::from("{");
    for (name, value) in names.iter().zip(fields.iter()) {
        let value = std::str::from_utf8(value).map_err(|_| Reason::TableRow {
            detail: format!("the value of {name} is not in UTF-8; convert the file, as iconv does"),
        })?;
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(name);
        json.push(':');
        json.push_str(&serde_json::Value::from(value).to_string());
    }
    json.push('}');
    Ok(bytes::Bytes::from(json).into())
}

#[cfg(test)]
mod tests;
