//! The conversations of a Parquet file, row by row, as JSON objects like the lines of a JSONL file.
//!
//! The columns may be nested (a list of structs) or hold JSON as text. Null fields inside a message are left out: a
//! writer adds them to every message for a field that any message has.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, List, Map, Row as FieldRow};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};

use super::row_groups::RowGroups;
use super::row_json::{
    ConversationColumns, RowValue, object, put_bytes, put_float, put_number, put_text, separate,
    text_of,
};
use super::unit_reader::Outcome;
use super::{InputFile, Reason};

/// Number of rows decoded at a time.
const BATCH_ROWS: usize = 16;

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
        Ok(fields.map(|fields| {
            let named = fields.iter().map(|(name, field)| (name.as_str(), field));
            (row, object(named, &self.columns))
        }))
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
            let detail = missing(name, columns.setting, &names(fields));
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

/// Returns that a column with messages is missing in a file with columns `names`.
pub(super) fn missing(messages: &str, setting: &str, names: &str) -> String {
    let hint = if names.contains("conversations") {
        "; ShareGPT's form needs chat.messages = \"conversations\", chat.role_key = \"from\", \
         chat.content_key = \"value\" and chat.roles = { human = \"user\", gpt = \"assistant\" }"
    } else {
        ""
    };
    format!(
        "has no column \"{messages}\" in this file, which has {names}; name the right one in \
         {setting}{hint}"
    )
}

impl RowValue for &Field {
    fn is_null(&self) -> bool {
        matches!(self, Field::Null)
    }

    fn as_text(&self) -> Result<Option<Cow<'_, str>>, Reason> {
        match self {
            Field::Str(text) => Ok(Some(text.into())),
            Field::Bytes(bytes) => text_of(bytes.data()).map(Some),
            _ => Ok(None),
        }
    }

    fn put(&self, json: &mut String, columns: &ConversationColumns) -> Result<(), Reason> {
        put(json, self, columns)
    }
}

fn put(json: &mut String, field: &Field, columns: &ConversationColumns) -> Result<(), Reason> {
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
        Field::Bytes(bytes) if columns.verbatim => put_bytes(json, bytes.data()),
        Field::Bytes(bytes) => put_text(json, &text_of(bytes.data())?),
        Field::Decimal(_) => put_text(json, &field.to_string()),
        Field::Group(row) => put_row(json, row, columns)?,
        Field::ListInternal(list) => put_list(json, list, columns)?,
        Field::MapInternal(map) => put_map(json, map, columns)?,
    }
    Ok(())
}

/// Writes a row as an object. A field that is null is left out, unless all are kept or it is the content.
fn put_row(json: &mut String, row: &FieldRow, columns: &ConversationColumns) -> Result<(), Reason> {
    json.push('{');
    for (name, field) in row.get_column_iter() {
        let kept = columns.verbatim || *name == columns.content_key;
        if kept || !matches!(field, Field::Null) {
            separate(json);
            put_text(json, name);
            json.push(':');
            put(json, field, columns)?;
        }
    }
    json.push('}');
    Ok(())
}

fn put_list(json: &mut String, list: &List, columns: &ConversationColumns) -> Result<(), Reason> {
    json.push('[');
    for (n, item) in list.elements().iter().enumerate() {
        if n > 0 {
            json.push(',');
        }
        put(json, item, columns)?;
    }
    json.push(']');
    Ok(())
}

/// Writes a map as an object, whose keys are the texts of the map's keys.
fn put_map(json: &mut String, map: &Map, columns: &ConversationColumns) -> Result<(), Reason> {
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
        put(json, value, columns)?;
    }
    json.push('}');
    Ok(())
}

#[cfg(test)]
mod tests;
