//! One text column of a Parquet file, row by row, through the column reader (no Arrow).

use std::fs::File;
use std::io;
use std::sync::Arc;

use batchweave_store::StoreError;
use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as ParquetReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};

use super::remote::{self, Bounded, RemoteObject};
use super::{InputFile, Location, Reason};

/// Number of rows decoded at a time.
const BATCH_ROWS: usize = 256;

/// A cursor over the rows of one column.
pub(super) struct ColumnRows {
    groups: Groups,
    column: usize,
    nullable: bool,
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    batch: std::vec::IntoIter<Option<ByteArray>>,
    next_row: u64,
}

/// The reason why a file cannot be read: its content, or the access to it.
pub(super) enum ReadFailure {
    Content(Reason),
    Io(io::Error),
}

impl From<Reason> for ReadFailure {
    fn from(reason: Reason) -> Self {
        Self::Content(reason)
    }
}

impl From<ParquetError> for ReadFailure {
    fn from(why: ParquetError) -> Self {
        // The parquet crate reports as external errors both failures of the store and damage: invalid UTF-8 in the
        // footer, a page that extends beyond the end of the file, broken compressed data.
        let detail = match why {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(io) if is_access_failure(&io) => return Self::Io(*io),
                Ok(io) => io.to_string(),
                Err(other) => other.to_string(),
            },
            other => other.to_string(),
        };
        Self::Content(Reason::BrokenParquet { detail })
    }
}

/// Returns whether the access to the file failed. All other errors are about its content; the kind of an error of
/// zstd does not tell the two apart.
fn is_access_failure(why: &io::Error) -> bool {
    let inner = why.get_ref();
    why.raw_os_error().is_some()
        || inner.is_some_and(|e| e.is::<StoreError>() || e.is::<remote::Changed>())
}

type Outcome<T> = Result<T, ReadFailure>;

/// The row groups of a file, one after another.
pub(super) struct Groups {
    file: Arc<dyn ParquetReader>,
    next: usize,
}

impl Groups {
    pub(super) fn open(file: &InputFile) -> Outcome<Self> {
        let size = file.pin.size;
        let file: Arc<dyn ParquetReader> = match &file.location {
            Location::Local(path) => {
                remote::check_size(file).map_err(ReadFailure::Io)?;
                let local = File::open(path).map_err(ReadFailure::Io)?;
                Arc::new(SerializedFileReader::new(Bounded::new(local, size))?)
            }
            Location::Remote { .. } => {
                let object = RemoteObject::from_file(file).map_err(ReadFailure::Io)?;
                Arc::new(SerializedFileReader::new(Bounded::new(object, size))?)
            }
        };
        Ok(Self { file, next: 0 })
    }

    /// Returns the index of the column `wanted`.
    pub(super) fn column(&self, wanted: &str) -> Outcome<usize> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        let mut columns = schema.columns().iter();
        columns
            .position(|c| c.path().string() == wanted || is_list(c, wanted))
            .ok_or_else(|| {
                let names: Vec<String> =
                    schema.columns().iter().map(|c| c.path().string()).collect();
                let (column, columns) = (wanted.to_owned(), names.join(", "));
                Reason::NoColumn { column, columns }.into()
            })
    }

    /// Returns the number of rows in the file, by its footer.
    pub(super) fn rows(&self) -> u64 {
        let rows = self.file.metadata().file_metadata().num_rows();
        rows.unsigned_abs()
    }

    /// Returns rows and bytes of each row group: of the columns below `wanted`, or of all if there are none.
    pub(super) fn sizes(&self, wanted: &[&str]) -> Vec<(u64, u64)> {
        let below = |path: &str| {
            let rests = wanted.iter().filter_map(|name| path.strip_prefix(name));
            rests
                .into_iter()
                .any(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let groups = self.file.metadata().row_groups().iter();
        groups
            .map(|group| {
                let columns = group.columns().iter();
                let columns = columns.filter(|c| below(&c.column_path().string()));
                let own: u64 = columns.map(|c| c.uncompressed_size().unsigned_abs()).sum();
                let all = group.total_byte_size().unsigned_abs();
                let bytes = if own > 0 { own } else { all };
                (group.num_rows().unsigned_abs(), bytes.max(1))
            })
            .collect()
    }

    pub(super) fn schema(&self) -> SchemaDescPtr {
        self.file.metadata().file_metadata().schema_descr_ptr()
    }

    pub(super) fn descriptor(&self, column: usize) -> ColumnDescPtr {
        let schema = self.file.metadata().file_metadata().schema_descr();
        schema.column(column)
    }

    /// Skips whole row groups before `row`, by the footer's counts. Returns the first row of the next one.
    pub(super) fn skip_groups(&mut self, row: u64) -> u64 {
        let mut first = 0;
        while self.next < self.file.num_row_groups() {
            let group = self.file.metadata().row_group(self.next);
            let rows = group.num_rows().unsigned_abs();
            if first + rows > row {
                break;
            }
            first += rows;
            self.next += 1;
        }
        first
    }

    pub(super) fn next(&mut self) -> Outcome<Option<Box<dyn RowGroupReader + '_>>> {
        if self.next == self.file.num_row_groups() {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(self.file.get_row_group(self.next - 1)?))
    }
}

/// Returns whether this is the only column of the list `wanted`, as `a.list.element`.
fn is_list(column: &ColumnDescPtr, wanted: &str) -> bool {
    let path = column.path().string();
    column.max_rep_level() == 1
        && path
            .strip_prefix(wanted)
            .is_some_and(|rest| rest.starts_with('.') && rest.matches('.').count() == 2)
}

impl ColumnRows {
    /// Returns the number of rows in the file.
    pub(super) fn total(&self) -> u64 {
        self.groups.rows()
    }

    /// Opens `file` at row `row` of column `column`.
    pub(super) fn open(file: &InputFile, column: &str, row: u64) -> Outcome<Self> {
        let groups = Groups::open(file)?;
        let index = groups.column(column)?;
        let nullable = check_text(&groups.descriptor(index), column)?;
        let mut rows = Self {
            groups,
            column: index,
            nullable,
            reader: None,
            batch: Vec::new().into_iter(),
            next_row: 0,
        };
        rows.seek(row)?;
        Ok(rows)
    }

    /// Skips whole row groups, then rows within one.
    fn seek(&mut self, row: u64) -> Outcome<()> {
        self.next_row = self.groups.skip_groups(row);
        let within = row.saturating_sub(self.next_row);
        if within > 0 && self.open_group()? {
            if let Some(reader) = &mut self.reader {
                reader.skip_records(usize::try_from(within).unwrap_or(usize::MAX))?;
            }
            self.next_row = row;
        }
        Ok(())
    }

    fn open_group(&mut self) -> Outcome<bool> {
        let Some(group) = self.groups.next()? else {
            return Ok(false);
        };
        let ColumnReader::ByteArrayColumnReader(reader) = group.get_column_reader(self.column)?
        else {
            return Err(Reason::BrokenParquet {
                detail: "the column's type differs between row groups".into(),
            }
            .into());
        };
        self.reader = Some(reader);
        Ok(true)
    }

    /// Returns the number and the value of the next row; `None` at the end.
    pub(super) fn next(&mut self) -> Outcome<Option<(u64, Result<ByteArray, Reason>)>> {
        loop {
            if let Some(value) = self.batch.next() {
                let row = self.next_row;
                self.next_row += 1;
                return Ok(Some((row, value.ok_or(Reason::Null))));
            }
            if self.reader.is_none() && !self.open_group()? {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Outcome<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let wanted = self.nullable.then_some(&mut levels);
        let (rows, _, _) = reader.read_records(BATCH_ROWS, wanted, None, &mut values)?;
        if rows == 0 {
            self.reader = None;
            return Ok(());
        }
        let mut values = values.into_iter();
        let batch: Vec<Option<ByteArray>> = if self.nullable {
            let present = levels.iter().max().copied().unwrap_or(0).max(1);
            levels
                .iter()
                .map(|&level| {
                    if level == present {
                        values.next()
                    } else {
                        None
                    }
                })
                .collect()
        } else {
            values.map(Some).collect()
        };
        self.batch = batch.into_iter();
        Ok(())
    }
}

/// Checks that the column is text. Returns whether it may hold nulls.
fn check_text(column: &ColumnDescPtr, wanted: &str) -> Outcome<bool> {
    if column.physical_type() != PhysicalType::BYTE_ARRAY || column.max_rep_level() > 0 {
        let found = if column.max_rep_level() > 0 {
            "a list".to_owned()
        } else {
            column.physical_type().to_string()
        };
        return Err(Reason::ColumnType {
            column: wanted.to_owned(),
            found,
        }
        .into());
    }
    Ok(column.max_def_level() > 0)
}

#[cfg(test)]
pub(super) mod tests;
