//! The first documents of a file with all of their fields, for a survey: no setting names the field with the text yet.

use batchweave_daemon::panics::guard;
use serde_json::{Map, Value};

use super::column_names::column_names;
use super::file_stream::FileStream;
use super::row_json::ConversationColumns;
use super::rows::panicked;
use super::shards::first_samples;
use super::unit_reader::{Outcome, ReadFailure};
use super::{FileReader, Format, InputFile, Place, ReadContent, ReadOptions, Reason, UnitKind};
use crate::transform::json::is_json;

/// The first documents of a file.
#[derive(Debug, Default)]
pub(crate) struct Preview {
    /// Objects of fields, or texts.
    pub(crate) documents: Vec<Value>,
    /// The bytes of the stored file that hold them.
    pub(crate) consumed: u64,
    /// The reason why the first bad document, or the file, can't be read.
    pub(crate) fault: Option<String>,
}

impl Preview {
    /// Reads up to `most` documents of `file`. Must be called outside of async code.
    pub(crate) fn read(file: &InputFile, options: &ReadOptions, most: usize) -> Self {
        let mut preview = Self::default();
        let read = guard(|| preview.add(file, options, most)).unwrap_or_else(panicked);
        if let Err(why) = read {
            preview.consumed = file.pin.size;
            let name = &file.pin.name;
            preview.add_fault(match why {
                ReadFailure::Content(reason) => format!("{name}: {reason}"),
                ReadFailure::Io(why) => format!("{name}: {why}"),
                ReadFailure::Input(why) => why.to_string(),
            });
        }
        preview
    }

    fn add(&mut self, file: &InputFile, options: &ReadOptions, most: usize) -> Outcome<()> {
        match options.format.for_file(&file.pin.name) {
            Format::Webdataset => self.add_samples(file, options, most),
            Format::Parquet | Format::Arrow => {
                self.add_units(file, &with_all_columns(file, options)?, most)
            }
            _ => self.add_units(file, options, most),
        }
    }

    fn add_fault(&mut self, why: String) {
        self.fault.get_or_insert(why);
    }

    fn add_units(&mut self, file: &InputFile, options: &ReadOptions, most: usize) -> Outcome<()> {
        let mut reader = FileReader::open(file, options, Place::of_file(0))?;
        while self.documents.len() < most
            && let Some(unit) = reader.next_unit()?
        {
            let document = match (unit.kind, unit.raw) {
                (_, Err(reason)) => Err(reason.to_string()),
                (UnitKind::Json | UnitKind::Row, Ok(raw)) if raw.trim_ascii().is_empty() => {
                    continue;
                }
                (UnitKind::Json | UnitKind::Row, Ok(raw)) => object(&raw),
                (UnitKind::Text | UnitKind::Line, Ok(raw)) => text(&raw),
                _ => break,
            };
            match document {
                Ok(document) => self.documents.push(document),
                Err(why) => {
                    let place = unit.place.unit + 1;
                    self.add_fault(format!("{}:{place}: {why}", file.pin.name));
                    // A file of another form has no documents at all.
                    if self.documents.is_empty() {
                        break;
                    }
                }
            }
        }
        self.consumed = reader.consumed();
        Ok(())
    }

    fn add_samples(&mut self, file: &InputFile, options: &ReadOptions, most: usize) -> Outcome<()> {
        let mut stream = FileStream::new(file, options.decompress_memory);
        let (samples, read) = first_samples(stream.open_at(0)?, most)?;
        self.documents = samples;
        self.consumed = stream.packed().unwrap_or(read).min(file.pin.size);
        Ok(())
    }
}

/// Returns the settings that read all columns of a file of rows.
fn with_all_columns(file: &InputFile, options: &ReadOptions) -> Outcome<ReadOptions> {
    let columns = ConversationColumns {
        wanted: Vec::new(),
        optional: column_names(file, options.decompress_memory)?,
        content_key: String::new(),
        verbatim: true,
        setting: "source.column",
    };
    Ok(ReadOptions {
        content: ReadContent::Rows(columns),
        ..options.clone()
    })
}

fn object(raw: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(raw) {
        Ok(document @ Value::Object(_)) => Ok(document),
        // As Python writes NaN: the document is fine, and others show its fields.
        _ if raw.trim_ascii_start().starts_with(b"{") && is_json(raw) => {
            Ok(Value::Object(Map::new()))
        }
        _ => Err(
            "no JSON object on one line; `jq -c . FILE` makes lines of objects, and `jq -c '.[]' FILE` of an array"
                .to_owned(),
        ),
    }
}

fn text(raw: &[u8]) -> Result<Value, String> {
    std::str::from_utf8(raw).map(Value::from).map_err(|why| {
        let at = why.valid_up_to();
        Reason::InvalidUtf8 { at }.to_string()
    })
}
