//! The conversations of a Parquet file, row by row, as JSON objects like the lines of a JSONL file.
//!
//! The columns may be nested (a list of structs) or hold JSON as text. Null fields inside a message are left out: a
//! writer adds them to every message for a field that any message has.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, List, Map, Row as FieldRow};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use serde::de::IgnoredAny;

use super::row_groups::RowGroups;
use super::unit_reader::Outcome;
use super::{InputFile, Reason};

/// Number of rows decoded at a time.
const BATCH_ROWS: usize = 16;

/// The columns of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationColumns {
    /// Columns that the file must have: those with messages.
    pub wanted: Vec<String>,
    /// Columns that are read if the file has them.
    pub optional: Vec<String>,
    /// Field of a message that stays when it is null.
    pub content_key: String,
    /// Rows stay as they are: nulls, texts that look like JSON, and bytes, which become base64 below `__bytes__`.
    pub verbatim: bool,
    /// The settings that name the wanted columns, for messages.
    pub setting: &'static str,
}

/// The number of a row and its JSON object.
type Row = (u64, Result<Vec<u8>, Reason>);

/// A cursor over the conversations of a file.
pub(super) struct ConversationRows {
    groups: RowGroups,
    columns: ConversationColumns,
    schema: SchemaDescPtr,
    rows: Option<ReaderIter>,
    next_row: u64,
}

impl ConversationRows {
    /// Returns the row groups that it reads.
    pub(super) fn groups(&self) -> &RowGroups {
        &self.groups
    }

    /// Opens `file` at the beginning of `rows`. Row groups behind them are left out.
    pub(super) fn open(
        file: &InputFile,
        columns: &ConversationColumns,
        rows: Range<u64>,
    ) -> Outcome<Self> {
        let row = rows.start;
        let mut groups = RowGroups::open(file, rows)?;
        let schema = projection(&groups.schema(), columns)?;
        let all = columns.wanted.iter().chain(&columns.optional);
        groups.read_columns_below(all.map(String::as_str));
        let next_row = groups.first_row();
        let mut rows = Self {
            groups,
            columns: columns.clone(),
            schema,
            rows: None,
            next_row,
        };
        // Nested rows have no faster way to a row of a group.
        while rows.next_row < row {
            if rows.next_fields()?.is_none() {
                break;
            }
        }
        Ok(rows)
    }

    /// Returns the number and the JSON object of the next row; `None` at the end.
    pub(super) fn next(&mut self) -> Outcome<Option<Row>> {
        let row = self.next_row;
        let fields = self.next_fields()?;
        Ok(fields.map(|fields| (row, object(fields, &self.columns))))
    }

    fn next_fields(&mut self) -> Outcome<Option<Vec<(String, Field)>>> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                self.next_row += 1;
                return Ok(Some(row?.into_columns()));
            }
            let Some(group) = self.groups.next()? else {
                return Ok(None);
            };
            let builder = TreeBuilder::new().with_batch_size(BATCH_ROWS);
            self.rows = Some(builder.as_iter(self.schema.clone(), group.as_ref())?);
        }
    }
}

/// Returns the schema of the wanted columns alone.
fn projection(
    schema: &SchemaDescriptor,
    columns: &ConversationColumns,
) -> Result<SchemaDescPtr, Reason> {
    let root = schema.root_schema();
    let fields = root.get_fields();
    let find = |name: &str| fields.iter().find(|field| field.name() == name);
    let mut wanted = Vec::new();
    for name in &columns.wanted {
        let Some(column) = find(name) else {
            if columns.verbatim {
                return Err(Reason::NoRowColumn {
                    column: name.clone(),
                    columns: names(fields),
                });
            }
            let detail = missing(name, columns.setting, fields);
            return Err(Reason::NoMessages { detail });
        };
        wanted.push(column.clone());
    }
    let optional = columns.optional.iter();
    let optional = optional.filter(|name| !columns.wanted.contains(name));
    wanted.extend(optional.filter_map(|name| find(name).cloned()));
    let group = Type::group_type_builder(root.name()).with_fields(wanted);
    let group = group.build().map_err(|why| Reason::BrokenParquet {
        detail: why.to_string(),
    })?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(group))))
}

/// Returns the first columns of a file, for a message.
fn names(fields: &[TypePtr]) -> String {
    let mut names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    names.truncate(20);
    names.join(", ")
}

fn missing(messages: &str, setting: &str, fields: &[TypePtr]) -> String {
    let names = names(fields);
    let hint = if names.contains("conversations") {
        "; ShareGPT's form needs chat.messages = \"conversations\", chat.role_key = \"from\", \
         chat.content_key = \"value\" and chat.roles = { human = \"user\", gpt = \"assistant\" }"
    } else {
        ""
    };
    format!(
        "has no column \"{messages}\" in this Parquet file, which has {names}; name the right one in \
         {setting}{hint}"
    )
}

/// Returns a row as a JSON object.
fn object(fields: Vec<(String, Field)>, columns: &ConversationColumns) -> Result<Vec<u8>, Reason> {
    let mut json = String::from("{");
    for (name, field) in fields {
        match field {
            Field::Null if columns.verbatim => {}
            Field::Null if columns.wanted.contains(&name) => return Err(Reason::Null),
            Field::Null => continue,
            _ => {}
        }
        separate(&mut json);
        put_text(&mut json, &name);
        json.push(':');
        match field {
            Field::Str(text) if !columns.verbatim => put_json_or_text(&mut json, &text),
            Field::Bytes(bytes) if !columns.verbatim => {
                put_json_or_text(&mut json, bytes.as_utf8().unwrap_or_default())
            }
            field => put(&mut json, &field, columns),
        }
    }
    json.push('}');
    Ok(json.into_bytes())
}

fn separate(json: &mut String) {
    if !json.ends_with(['{', '[', ':']) {
        json.push(',');
    }
}

/// Appends a text that is a list or an object in JSON as it is, and any other as a string.
fn put_json_or_text(json: &mut String, text: &str) {
    let nested = text.trim_start().starts_with(['[', '{']);
    if nested && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        json.push_str(text);
    } else {
        put_text(json, text);
    }
}

fn put_text(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

fn put(json: &mut String, field: &Field, columns: &ConversationColumns) {
    match field {
        Field::Null => json.push_str("null"),
        Field::Bool(value) => put_number(json, value),
        Field::Byte(n) => put_number(json, n),
        Field::Short(n) => put_number(json, n),
        Field::Int(n) | Field::Date(n) | Field::TimeMillis(n) => put_number(json, n),
        Field::Long(n)
        | Field::TimeMicros(n)
        | Field::TimestampMillis(n)
        | Field::TimestampMicros(n) => put_number(json, n),
        Field::UByte(n) => put_number(json, n),
        Field::UShort(n) => put_number(json, n),
        Field::UInt(n) => put_number(json, n),
        Field::ULong(n) => put_number(json, n),
        Field::Float16(n) => put_float(json, f64::from(*n)),
        Field::Float(n) => put_float(json, f64::from(*n)),
        Field::Double(n) => put_float(json, *n),
        Field::Str(text) => put_text(json, text),
        Field::Bytes(bytes) if columns.verbatim => {
            json.push_str("{\"__bytes__\":");
            put_text(json, &STANDARD.encode(bytes.data()));
            json.push('}');
        }
        Field::Bytes(bytes) => put_text(json, bytes.as_utf8().unwrap_or_default()),
        Field::Decimal(_) => put_text(json, &field.to_string()),
        Field::Group(row) => put_row(json, row, columns),
        Field::ListInternal(list) => put_list(json, list, columns),
        Field::MapInternal(map) => put_map(json, map, columns),
    }
}

/// Writes a row as an object. A field that is null is left out, unless all are kept or it is the content.
fn put_row(json: &mut String, row: &FieldRow, columns: &ConversationColumns) {
    json.push('{');
    for (name, field) in row.get_column_iter() {
        let kept = columns.verbatim || *name == columns.content_key;
        if kept || !matches!(field, Field::Null) {
            separate(json);
            put_text(json, name);
            json.push(':');
            put(json, field, columns);
        }
    }
    json.push('}');
}

fn put_list(json: &mut String, list: &List, columns: &ConversationColumns) {
    json.push('[');
    for (n, item) in list.elements().iter().enumerate() {
        if n > 0 {
            json.push(',');
        }
        put(json, item, columns);
    }
    json.push(']');
}

/// Writes a map as an object, whose keys are the texts of the map's keys.
fn put_map(json: &mut String, map: &Map, columns: &ConversationColumns) {
    json.push('{');
    for (n, (key, value)) in map.entries().iter().enumerate() {
        if n > 0 {
            json.push(',');
        }
        match key {
            Field::Str(key) => put_text(json, key),
            key => put_text(json, &key.to_string()),
        }
        json.push(':');
        put(json, value, columns);
    }
    json.push('}');
}

fn put_number(json: &mut String, n: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(json, "{n}");
}

/// Appends a number with a fraction; JSON has none of NaN and infinities.
fn put_float(json: &mut String, n: f64) {
    json.push_str(&serde_json::Value::from(n).to_string());
}

#[cfg(test)]
mod tests;
