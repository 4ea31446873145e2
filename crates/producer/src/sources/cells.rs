//! Several columns of a Parquet file, row by row, as the bytes and numbers of samples.

use std::ops::Range;

use parquet::basic::{ConvertedType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

use super::cell::Cell;
use super::row_groups::RowGroups;
use super::unit_reader::Outcome;
use super::{InputFile, Reason};

/// Number of rows decoded at a time; small, because samples may be large.
const BATCH_ROWS: usize = 16;

type Row = Result<Vec<Cell>, Reason>;

/// A cursor over the rows of several columns.
pub(super) struct CellRows {
    groups: RowGroups,
    /// Index, levels and reader (in the open group) of each column.
    columns: Vec<(usize, Levels, Option<ColumnReader>)>,
    batch: std::vec::IntoIter<Row>,
    next_row: u64,
}

impl CellRows {
    /// Returns the row groups that it reads.
    pub(super) fn groups(&self) -> &RowGroups {
        &self.groups
    }

    /// Opens `file` at the beginning of `rows` of the columns `names`. Row groups behind them are left out.
    pub(super) fn open(file: &InputFile, names: &[String], rows: Range<u64>) -> Outcome<Self> {
        let row = rows.start;
        let groups = RowGroups::open(file, rows)?;
        let find = |name: &String| {
            let index = groups.column(name)?;
            let column = groups.descriptor(index);
            Ok((index, Levels::from_column(name, &column)?, None))
        };
        let columns: Outcome<Vec<_>> = names.iter().map(find).collect();
        let mut rows = Self {
            columns: columns?,
            groups,
            batch: Vec::new().into_iter(),
            next_row: 0,
        };
        let columns = rows.columns.iter().map(|(index, _, _)| *index);
        rows.groups.read_columns(columns.collect());
        rows.next_row = rows.groups.first_row();
        let within = row.saturating_sub(rows.next_row);
        if within > 0 && rows.open_group()? {
            let within = usize::try_from(within).unwrap_or(usize::MAX);
            for (_, _, reader) in &mut rows.columns {
                if let Some(reader) = reader {
                    skip(reader, within)?;
                }
            }
            rows.next_row = row;
        }
        Ok(rows)
    }

    /// Opens `file` at the beginning of `rows` of the column `name`, whose rows must be lists of whole numbers.
    pub(super) fn open_lists(file: &InputFile, name: &str, rows: Range<u64>) -> Outcome<Self> {
        let rows = Self::open(file, &[name.to_owned()], rows)?;
        let whole = rows.columns.iter().all(|(index, levels, _)| {
            let kind = rows.groups.descriptor(*index).physical_type();
            levels.list && [PhysicalType::INT32, PhysicalType::INT64].contains(&kind)
        });
        if !whole {
            let column = name.to_owned();
            return Err(Reason::NotIdColumn { column }.into());
        }
        Ok(rows)
    }

    fn open_group(&mut self) -> Outcome<bool> {
        let Some(group) = self.groups.next()? else {
            return Ok(false);
        };
        for (index, _, reader) in &mut self.columns {
            *reader = Some(group.get_column_reader(*index)?);
        }
        Ok(true)
    }

    /// Returns the number and the cells of the next row; `None` at the end.
    pub(super) fn next(&mut self) -> Outcome<Option<(u64, Row)>> {
        loop {
            if let Some(values) = self.batch.next() {
                let row = self.next_row;
                self.next_row += 1;
                return Ok(Some((row, values)));
            }
            let closed = self.columns.iter().any(|(_, _, reader)| reader.is_none());
            if closed && !self.open_group()? {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Outcome<()> {
        let mut rows: Vec<Row> = Vec::new();
        for (n, (_, levels, reader)) in self.columns.iter_mut().enumerate() {
            let Some(reader) = reader else { return Ok(()) };
            let cells = read(reader, *levels)?;
            if n == 0 {
                rows.resize_with(cells.len(), || Ok(Vec::new()));
            }
            if cells.len() != rows.len() {
                let detail = "its columns have different numbers of rows".to_owned();
                return Err(Reason::BrokenParquet { detail }.into());
            }
            for (row, cell) in rows.iter_mut().zip(cells) {
                match (row.as_mut(), cell) {
                    (Ok(row), Ok(cell)) => row.push(cell),
                    (Ok(_), Err(reason)) => *row = Err(reason),
                    (Err(_), _) => {}
                }
            }
        }
        if rows.is_empty() {
            for (_, _, reader) in &mut self.columns {
                *reader = None;
            }
        }
        self.batch = rows.into_iter();
        Ok(())
    }
}

/// The meaning of a column's definition levels.
#[derive(Debug, Clone, Copy)]
struct Levels {
    list: bool,
    /// The level of a value that exists.
    present: i16,
    /// The lowest level of an element of the list, which may be null.
    element: i16,
    /// Whole numbers of 32 or 64 bits have no sign.
    unsigned: bool,
}

impl Levels {
    fn from_column(name: &str, column: &ColumnDescriptor) -> Outcome<Self> {
        let list = column.max_rep_level() == 1;
        let kind = column.physical_type();
        let text = kind == PhysicalType::BYTE_ARRAY || kind == PhysicalType::FIXED_LEN_BYTE_ARRAY;
        let unsupported = column.max_rep_level() > 1 || list && text || kind == PhysicalType::INT96;
        if unsupported {
            let list = if list || column.max_rep_level() > 1 {
                "a nested list or a list of "
            } else {
                ""
            };
            return Err(Reason::ColumnType {
                column: name.to_owned(),
                found: format!("{list}{kind}"),
            }
            .into());
        }
        let present = column.max_def_level();
        let element = present - i16::from(column.self_type().is_optional());
        Ok(Self {
            list,
            present,
            element,
            unsigned: [ConvertedType::UINT_32, ConvertedType::UINT_64]
                .contains(&column.converted_type()),
        })
    }
}

fn skip(reader: &mut ColumnReader, rows: usize) -> Result<(), ParquetError> {
    let _ = match reader {
        ColumnReader::BoolColumnReader(r) => r.skip_records(rows),
        ColumnReader::Int32ColumnReader(r) => r.skip_records(rows),
        ColumnReader::Int64ColumnReader(r) => r.skip_records(rows),
        ColumnReader::Int96ColumnReader(r) => r.skip_records(rows),
        ColumnReader::FloatColumnReader(r) => r.skip_records(rows),
        ColumnReader::DoubleColumnReader(r) => r.skip_records(rows),
        ColumnReader::ByteArrayColumnReader(r) => r.skip_records(rows),
        ColumnReader::FixedLenByteArrayColumnReader(r) => r.skip_records(rows),
    }?;
    Ok(())
}

type Cells = Vec<Result<Cell, Reason>>;

fn read(reader: &mut ColumnReader, levels: Levels) -> Result<Cells, ParquetError> {
    let ints = |numbers: Vec<i64>| Cell::Ints(numbers);
    match reader {
        ColumnReader::BoolColumnReader(r) => {
            records(r, levels, |v| ints(v.into_iter().map(i64::from).collect()))
        }
        ColumnReader::Int32ColumnReader(r) => records(r, levels, |v| {
            let whole = |n: i32| {
                if levels.unsigned {
                    i64::from(n.cast_unsigned())
                } else {
                    i64::from(n)
                }
            };
            ints(v.into_iter().map(whole).collect())
        }),
        ColumnReader::Int64ColumnReader(r) if levels.unsigned => records(r, levels, |v| {
            Cell::Unsigned(v.into_iter().map(i64::cast_unsigned).collect())
        }),
        ColumnReader::Int64ColumnReader(r) => records(r, levels, ints),
        ColumnReader::FloatColumnReader(r) => records(r, levels, |v| {
            Cell::Floats(v.into_iter().map(f64::from).collect())
        }),
        ColumnReader::DoubleColumnReader(r) => records(r, levels, Cell::Floats),
        ColumnReader::ByteArrayColumnReader(r) => records(r, levels, |v| {
            Cell::Bytes(v.iter().flat_map(ByteArray::data).copied().collect())
        }),
        ColumnReader::FixedLenByteArrayColumnReader(r) => records(r, levels, |v| {
            Cell::Bytes(v.iter().flat_map(|fixed| fixed.data()).copied().collect())
        }),
        ColumnReader::Int96ColumnReader(_) => Ok(Vec::new()),
    }
}

fn records<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    levels: Levels,
    cell: impl Fn(Vec<T::T>) -> Cell,
) -> Result<Cells, ParquetError> {
    let (mut definitions, mut repeats, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let wanted = (levels.present > 0).then_some(&mut definitions);
    let repeated = levels.list.then_some(&mut repeats);
    let (records, _, _) = reader.read_records(BATCH_ROWS, wanted, repeated, &mut values)?;
    let mut values = values.into_iter();
    if levels.present == 0 {
        return Ok(values.map(|value| Ok(cell(vec![value]))).collect());
    }
    let mut cells: Vec<Result<Vec<T::T>, Reason>> = Vec::with_capacity(records);
    for (n, &definition) in definitions.iter().enumerate() {
        if !levels.list || repeats.get(n) == Some(&0) {
            cells.push(Ok(Vec::new()));
        }
        let Some(last) = cells.last_mut() else {
            continue;
        };
        if definition == levels.present {
            if let (Ok(list), Some(value)) = (last.as_mut(), values.next()) {
                list.push(value);
            }
        } else if !levels.list || definition >= levels.element {
            *last = Err(Reason::Null);
        }
    }
    Ok(cells.into_iter().map(|list| list.map(&cell)).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::sources::{Location, PinnedFile};

    fn cells<T: DataType>(path: &std::path::Path, schema: &str, numbers: [T::T; 2]) -> Cell {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<T>();
        typed
            .write_batch(&numbers, Some(&[1, 1]), Some(&[0, 1]))
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let size = path.metadata().unwrap().len();
        let file = InputFile {
            pin: PinnedFile::new(path.display().to_string(), size, b"", b""),
            location: Location::Local(path.to_owned()),
        };
        let rows = CellRows::open_lists(&file, "ids", 0..1);
        let row = rows
            .unwrap_or_else(|_| panic!("not a list of numbers"))
            .next();
        let (_, row) = row.unwrap_or_else(|_| panic!("no row")).unwrap();
        row.unwrap().remove(0)
    }

    #[test]
    fn whole_numbers_without_sign_keep_their_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let schema = |kind: &str| {
            format!(
                "message m {{ required group ids (LIST) {{ repeated group list {{ required {kind}; }} }} }}"
            )
        };
        let narrow = |of: &str| {
            let schema = schema(&format!("int32 element {of}"));
            cells::<Int32Type>(&path, &schema, [7, -1])
        };
        assert_eq!(narrow(""), Cell::Ints(vec![7, -1]));
        let unsigned = Cell::Ints(vec![7, u32::MAX.into()]);
        assert_eq!(narrow("(UINT_32)"), unsigned);
        assert_eq!(narrow("(INTEGER(32,false))"), unsigned);
        let wide = |of: &str| {
            let schema = schema(&format!("int64 element {of}"));
            cells::<Int64Type>(&path, &schema, [7, -1])
        };
        assert_eq!(wide(""), Cell::Ints(vec![7, -1]));
        let unsigned = Cell::Unsigned(vec![7, u64::MAX]);
        assert_eq!(wide("(UINT_64)"), unsigned);
        assert_eq!(wide("(INTEGER(64,false))"), unsigned);
    }
}
