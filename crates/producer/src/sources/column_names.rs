//! The names of the columns of a file of rows.

use super::arrow::arrow_columns;
use super::file_stream::FileStream;
use super::row_groups::RowGroups;
use super::unit_reader::Outcome;
use super::{Format, InputFile};

/// Returns the outermost columns of a Parquet or Arrow file, in its order; none of any other file.
pub(super) fn column_names(file: &InputFile, memory: u64) -> Outcome<Vec<String>> {
    match Format::Auto.for_file(&file.pin.name) {
        Format::Parquet => {
            let groups = RowGroups::open(file, 0..0)?;
            let schema = groups.schema();
            let fields = schema.root_schema().get_fields().iter();
            Ok(fields.map(|field| field.name().to_owned()).collect())
        }
        Format::Arrow => arrow_columns(&mut FileStream::new(file, memory)),
        _ => Ok(Vec::new()),
    }
}
