//! The row groups of a Parquet file, one after another.

use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};
use parquet::file::properties::{ReaderProperties, ReaderPropertiesPtr};
use parquet::file::reader::RowGroupReader;
use parquet::file::serialized_reader::SerializedRowGroupReader;
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};

use super::parquet_bytes::ParquetBytes;
use super::unit_reader::{Outcome, ReadFailure};
use super::{InputFile, Reason};

/// The row groups that hold some rows of a file.
pub(super) struct RowGroups {
    bytes: Arc<ParquetBytes>,
    /// The footer, with these row groups alone: many blocks of one file may be open.
    metadata: ParquetMetaData,
    properties: ReaderPropertiesPtr,
    /// The first row of the first group.
    first_row: u64,
    next: usize,
    /// Indices of the columns that are read.
    columns: Vec<usize>,
}

impl RowGroups {
    /// Opens the row groups that hold `rows`.
    pub(super) fn open(file: &InputFile, rows: Range<u64>) -> Outcome<Self> {
        let bytes = ParquetBytes::open(file).map_err(ReadFailure::Io)?;
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let metadata = ParquetMetaDataReader::new()
            .with_metadata_options(Some(options))
            .parse_and_finish(&bytes)?;
        let mut builder = metadata.into_builder();
        let (mut begin, mut first_row) = (0_u64, None);
        for group in builder.take_row_groups() {
            let end = begin.saturating_add(group.num_rows().unsigned_abs());
            if end > rows.start && begin < rows.end {
                first_row = first_row.or(Some(begin));
                builder = builder.add_row_group(group);
            }
            begin = end;
        }
        Ok(Self {
            bytes: Arc::new(bytes),
            metadata: builder.build(),
            properties: Arc::new(ReaderProperties::builder().build()),
            first_row: first_row.unwrap_or(begin),
            next: 0,
            columns: Vec::new(),
        })
    }

    /// Returns the index of the column `wanted`.
    pub(super) fn column(&self, wanted: &str) -> Outcome<usize> {
        let schema = self.metadata.file_metadata().schema_descr();
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

    /// Returns the value of a key of the file's metadata.
    pub(super) fn key_value(&self, wanted: &str) -> Option<&str> {
        let all = self.metadata.file_metadata().key_value_metadata()?;
        let found = all.iter().find(|pair| pair.key == wanted)?;
        found.value.as_deref()
    }

    /// Returns the number of rows in the file, by its footer.
    pub(super) fn rows(&self) -> u64 {
        let rows = self.metadata.file_metadata().num_rows();
        rows.unsigned_abs()
    }

    /// Returns the number of the first row of the first group.
    pub(super) fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Returns rows and bytes of each row group: of the columns below `wanted`, or of all if there are none.
    pub(super) fn sizes(&self, wanted: &[&str]) -> Vec<(u64, u64)> {
        let groups = self.metadata.row_groups().iter();
        groups
            .map(|group| {
                let columns = group.columns().iter();
                let columns =
                    columns.filter(|c| is_below(&c.column_path().string(), wanted.iter().copied()));
                let own: u64 = columns.map(|c| c.uncompressed_size().unsigned_abs()).sum();
                let all = group.total_byte_size().unsigned_abs();
                let bytes = if own > 0 { own } else { all };
                (group.num_rows().unsigned_abs(), bytes.max(1))
            })
            .collect()
    }

    pub(super) fn schema(&self) -> SchemaDescPtr {
        self.metadata.file_metadata().schema_descr_ptr()
    }

    pub(super) fn descriptor(&self, column: usize) -> ColumnDescPtr {
        let schema = self.metadata.file_metadata().schema_descr();
        schema.column(column)
    }

    /// Names the columns that will be read, by index, and requests those of the first group.
    pub(super) fn read_columns(&mut self, columns: Vec<usize>) {
        self.columns = columns;
        self.read_ahead();
    }

    /// Names the columns that will be read by the columns of the file's schema that contain them.
    pub(super) fn read_columns_below<'n>(&mut self, names: impl Iterator<Item = &'n str> + Clone) {
        let schema = self.schema();
        let columns = schema.columns().iter().enumerate();
        let wanted = columns.filter(|(_, c)| is_below(&c.path().string(), names.clone()));
        self.read_columns(wanted.map(|(n, _)| n).collect());
    }

    /// Requests the columns of the next group and of the one before it, which is read.
    fn read_ahead(&self) {
        let groups = self.metadata.row_groups().iter();
        let near = groups.skip(self.next.saturating_sub(1)).take(2);
        let places = near.flat_map(|group| {
            let columns = self.columns.iter();
            columns.filter_map(|n| {
                let (start, length) = group.columns().get(*n)?.byte_range();
                Some(start..start.checked_add(length)?)
            })
        });
        self.bytes.read_ahead(places.collect());
    }

    pub(super) fn next(&mut self) -> Outcome<Option<Box<dyn RowGroupReader + '_>>> {
        if self.next == self.metadata.num_row_groups() {
            return Ok(None);
        }
        self.next += 1;
        self.read_ahead();
        let group = SerializedRowGroupReader::new(
            Arc::clone(&self.bytes),
            self.metadata.row_group(self.next - 1),
            self.metadata.page_index_for_row_group(self.next - 1),
            Arc::clone(&self.properties),
        )?;
        Ok(Some(Box::new(group)))
    }
}

/// Returns whether the column `path` is one of `names`, or a part of it.
fn is_below<'n>(path: &str, mut names: impl Iterator<Item = &'n str>) -> bool {
    names.any(|name| {
        let rest = path.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns whether this is the only column of the list `wanted`, as `a.list.element`.
fn is_list(column: &ColumnDescPtr, wanted: &str) -> bool {
    let path = column.path().string();
    column.max_rep_level() == 1
        && path
            .strip_prefix(wanted)
            .is_some_and(|rest| rest.starts_with('.') && rest.matches('.').count() == 2)
}
