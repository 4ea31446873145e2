//! One text column of a Parquet file, row by row, through the column reader (no Arrow).

use std::io;
use std::ops::Range;

use batchweave_store::StoreError;
use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;

use super::row_groups::RowGroups;
use super::unit_reader::{Outcome, ReadFailure};
use super::{InputFile, Reason, remote};

/// Number of rows decoded at a time.
const BATCH_ROWS: usize = 256;

/// A cursor over the rows of one column.
pub(super) struct ColumnRows {
    groups: RowGroups,
    column: usize,
    nullable: bool,
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    batch: std::vec::IntoIter<Option<ByteArray>>,
    next_row: u64,
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

impl ColumnRows {
    /// Returns the row groups that it reads.
    pub(super) fn groups(&self) -> &RowGroups {
        &self.groups
    }

    /// Opens `file` at the beginning of `rows` of column `column`. Row groups behind them are left out.
    pub(super) fn open(file: &InputFile, column: &str, rows: Range<u64>) -> Outcome<Self> {
        let row = rows.start;
        let mut groups = RowGroups::open(file, rows)?;
        let index = groups.column(column)?;
        let nullable = check_text(&groups.descriptor(index), column)?;
        groups.read_columns(vec![index]);
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

    /// Skips rows within the first row group.
    fn seek(&mut self, row: u64) -> Outcome<()> {
        self.next_row = self.groups.first_row();
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
