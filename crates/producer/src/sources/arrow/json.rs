//! Values of Arrow's arrays as JSON, as those of a Parquet file of the same table are.

use std::borrow::Cow;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type};
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType;

use super::values::{bytes, is_bytes, is_null, is_text, items, looked_up, numbers};
use crate::sources::Reason;
use crate::sources::cell::Cell;
use crate::sources::row_json::ConversationColumns;
use crate::sources::row_json::{
    RowValue, put_bytes, put_float, put_number, put_text, separate, text_of,
};

/// The value of a column in a row.
pub(super) struct Value<'a> {
    pub(super) column: &'a ArrayRef,
    pub(super) row: usize,
}

impl RowValue for Value<'_> {
    fn is_null(&self) -> bool {
        is_null(self.column, self.row)
    }

    fn as_text(&self) -> Result<Option<Cow<'_, str>>, Reason> {
        if self.is_null() {
            return Ok(None);
        }
        if let DataType::Dictionary(..) = self.column.data_type() {
            let (values, row) = looked_up(self.column, self.row)?;
            let value = Value {
                column: &values,
                row,
            };
            let text = value.as_text()?;
            return Ok(text.map(|text| text.into_owned().into()));
        }
        let bytes = bytes(self.column, self.row);
        bytes.map(text_of).transpose()
    }

    fn put(&self, json: &mut String, columns: &ConversationColumns) -> Result<(), Reason> {
        let (column, row) = (self.column, self.row);
        if is_null(column, row) {
            json.push_str("null");
            return Ok(());
        }
        match column.data_type() {
            DataType::Dictionary(..) => {
                let (values, row) = looked_up(column, row)?;
                Value {
                    column: &values,
                    row,
                }
                .put(json, columns)?;
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                put_list(json, &items(column, row), columns)?;
            }
            DataType::Struct(_) => put_struct(json, column, row, columns)?,
            DataType::Map(..) => put_map(json, column, row, columns)?,
            found if is_bytes(found) && columns.verbatim => {
                put_bytes(json, bytes(column, row).unwrap_or_default());
            }
            found if is_text(found) => put_text(json, &self.as_text()?.unwrap_or_default()),
            _ => put_plain(json, column, row)?,
        }
        Ok(())
    }
}

fn put_list(
    json: &mut String,
    items: &ArrayRef,
    columns: &ConversationColumns,
) -> Result<(), Reason> {
    json.push('[');
    for row in 0..items.len() {
        if row > 0 {
            json.push(',');
        }
        Value { column: items, row }.put(json, columns)?;
    }
    json.push(']');
    Ok(())
}

fn put_struct(
    json: &mut String,
    column: &ArrayRef,
    row: usize,
    columns: &ConversationColumns,
) -> Result<(), Reason> {
    let fields = column.as_struct();
    json.push('{');
    for (name, column) in fields.column_names().into_iter().zip(fields.columns()) {
        let kept = columns.verbatim || name == columns.content_key;
        if kept || !is_null(column, row) {
            separate(json);
            put_text(json, name);
            json.push(':');
            Value { column, row }.put(json, columns)?;
        }
    }
    json.push('}');
    Ok(())
}

fn put_map(
    json: &mut String,
    column: &ArrayRef,
    row: usize,
    columns: &ConversationColumns,
) -> Result<(), Reason> {
    let entries = column.as_map().value(row);
    json.push('{');
    for row in 0..entries.len() {
        if row > 0 {
            json.push(',');
        }
        let column = entries.column(0);
        let key = Value { column, row };
        if let Some(text) = key.as_text()? {
            put_text(json, &text);
        } else {
            let mut words = String::new();
            key.put(&mut words, columns)?;
            put_text(json, &words);
        }
        json.push(':');
        let column = entries.column(1);
        Value { column, row }.put(json, columns)?;
    }
    json.push('}');
    Ok(())
}

/// Appends a number, or a decimal as a text.
fn put_plain(json: &mut String, column: &ArrayRef, row: usize) -> Result<(), Reason> {
    let decimal = match column.data_type() {
        DataType::Decimal32(..) => column.as_primitive::<Decimal32Type>().value_as_string(row),
        DataType::Decimal64(..) => column.as_primitive::<Decimal64Type>().value_as_string(row),
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value_as_string(row),
        DataType::Decimal256(..) => column.as_primitive::<Decimal256Type>().value_as_string(row),
        DataType::Boolean => {
            put_number(json, column.as_boolean().value(row));
            return Ok(());
        }
        _ => {
            match numbers(&column.slice(row, 1))? {
                Cell::Ints(one) => put_number(json, one.first().copied().unwrap_or_default()),
                Cell::Unsigned(one) => put_number(json, one.first().copied().unwrap_or_default()),
                Cell::Floats(one) => put_float(json, one.first().copied().unwrap_or_default()),
                Cell::Bytes(_) | Cell::File(_) => {}
            }
            return Ok(());
        }
    };
    put_text(json, &decimal);
    Ok(())
}
