//! The columns of a table of Arrow that documents are made of.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};

use super::json::Value;
use super::values::{cell, is_field, is_ints, is_number, is_text};
use crate::sources::cell::Cell;
use crate::sources::conversations::missing;
use crate::sources::row_json::{ConversationColumns, object};
use crate::sources::rows::NextRow;
use crate::sources::{ReadContent, ReadOptions, Reason};

/// The columns of a file, by their places in the decoded batches.
pub(super) struct Columns {
    wanted: Wanted,
    /// More columns of the same rows.
    beside: Vec<usize>,
    /// The places in the file of what is decoded, in order.
    decoded: Vec<usize>,
}

enum Wanted {
    Text(usize),
    Cells(Vec<usize>),
    /// Columns of a JSON object.
    Object {
        places: Vec<(String, usize)>,
        columns: ConversationColumns,
    },
}

impl Columns {
    /// Finds the columns that `options` name, and checks their types.
    pub(super) fn find(schema: &Schema, options: &ReadOptions) -> Result<Self, Reason> {
        let cells = |names: &[String]| -> Result<Vec<usize>, Reason> {
            let places = names.iter().map(|name| typed(schema, name, is_cell));
            places.collect()
        };
        let wanted = match &options.content {
            ReadContent::Conversations(columns) | ReadContent::Rows(columns) => Wanted::Object {
                places: places_of(schema, columns)?,
                columns: columns.clone(),
            },
            ReadContent::Ids { .. } => Wanted::Cells(vec![ids(schema, &options.column)?]),
            ReadContent::Documents if options.arrays.is_empty() => {
                Wanted::Text(typed(schema, &options.column, is_text)?)
            }
            ReadContent::Documents => Wanted::Cells(cells(&options.arrays)?),
        };
        let mut columns = Self {
            wanted,
            beside: cells(&options.beside)?,
            decoded: Vec::new(),
        };
        columns.select();
        Ok(columns)
    }

    /// Returns the places of the columns that must be decoded.
    pub(super) fn decoded(&self) -> &[usize] {
        &self.decoded
    }

    /// Replaces places in the file by those in the decoded batches.
    fn select(&mut self) {
        let mut places = self.beside.clone();
        match &self.wanted {
            Wanted::Text(place) => places.push(*place),
            Wanted::Cells(cells) => places.extend(cells),
            Wanted::Object { places: named, .. } => {
                places.extend(named.iter().map(|(_, place)| place));
            }
        }
        places.sort_unstable();
        places.dedup();
        let found = |place: &mut usize| *place = places.partition_point(|other| *other < *place);
        self.beside.iter_mut().for_each(found);
        match &mut self.wanted {
            Wanted::Text(place) => found(place),
            Wanted::Cells(cells) => cells.iter_mut().for_each(found),
            Wanted::Object { places: named, .. } => {
                for (_, place) in named {
                    found(place);
                }
            }
        }
        self.decoded = places;
    }

    /// Returns the bytes and the cells of a row.
    pub(super) fn row<'a>(&'a self, batch: &'a RecordBatch, row: usize) -> NextRow {
        let cell_at = |place: &usize| cell(batch.column(*place), row);
        let (bytes, mut cells) = match &self.wanted {
            Wanted::Text(place) => match cell_at(place)? {
                Cell::Bytes(text) => (text.into(), Vec::new()),
                _ => return Err(Reason::Null),
            },
            Wanted::Cells(places) => {
                let cells: Result<Vec<Cell>, Reason> = places.iter().map(cell_at).collect();
                (Vec::new(), cells?)
            }
            Wanted::Object { places, columns } => {
                let value = |(name, place): &'a (String, usize)| {
                    let column = batch.column(*place);
                    (name.as_str(), Value { column, row })
                };
                (object(places.iter().map(value), columns)?, Vec::new())
            }
        };
        for place in &self.beside {
            cells.push(cell_at(place)?);
        }
        Ok((bytes, cells))
    }
}

/// Returns whether values can be cells.
fn is_cell(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_number(item.data_type())
        }
        other => is_text(other) || is_number(other),
    }
}

fn place(schema: &Schema, name: &str) -> Option<usize> {
    schema
        .fields()
        .iter()
        .position(|field| field.name() == name)
}

/// Returns the first columns of a file, for a message.
fn names(schema: &Schema) -> String {
    let fields = schema.fields().iter().take(20);
    let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
    names.join(", ")
}

/// Returns the place of a column whose type is `right`.
fn typed(schema: &Schema, name: &str, right: fn(&DataType) -> bool) -> Result<usize, Reason> {
    let place = place(schema, name).ok_or_else(|| Reason::NoColumn {
        column: name.to_owned(),
        columns: names(schema),
    })?;
    let found = plain(schema.field(place).data_type());
    if !right(found) {
        return Err(Reason::ColumnType {
            column: name.to_owned(),
            found: found.to_string(),
        });
    }
    Ok(place)
}

/// Returns the type of the values of a dictionary, or the type itself.
fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// Returns the place of a column whose rows are lists of whole numbers.
fn ids(schema: &Schema, name: &str) -> Result<usize, Reason> {
    let lists = |data_type: &DataType| match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_ints(item.data_type())
        }
        _ => false,
    };
    typed(schema, name, lists).map_err(|why| match why {
        Reason::ColumnType { column, .. } => Reason::NotIdColumn { column },
        other => other,
    })
}

/// Returns the columns of JSON objects: the wanted ones, and the optional ones that the file has.
fn places_of(
    schema: &Schema,
    columns: &ConversationColumns,
) -> Result<Vec<(String, usize)>, Reason> {
    let mut places = Vec::new();
    for name in &columns.wanted {
        let place = place(schema, name).ok_or_else(|| {
            let (column, columns_there) = (name.clone(), names(schema));
            if columns.verbatim {
                return Reason::NoRowColumn {
                    column,
                    columns: columns_there,
                };
            }
            Reason::NoMessages {
                detail: missing(name, columns.setting, &columns_there),
            }
        })?;
        places.push((name.clone(), place));
    }
    let optional = columns.optional.iter();
    let optional = optional.filter(|name| !columns.wanted.contains(name));
    places.extend(optional.filter_map(|name| Some((name.clone(), place(schema, name)?))));
    for (name, place) in &places {
        let found = schema.field(*place).data_type();
        if !is_field(found) {
            return Err(Reason::NotInJson {
                column: name.clone(),
                found: found.to_string(),
            });
        }
    }
    Ok(places)
}
