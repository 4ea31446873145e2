//! The result as a Parquet file, whole or not at all: written beside it and renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::table::{DetailLoss, SourceLoss, StepLoss, Table};

const STEPS: &str = "message losses { required int64 step; required int64 attempt; optional double loss; \
    required double tokens; required int64 nonfinite; required int64 coordinates; required int64 of; }";
const SOURCES: &str = "message losses { required int64 number; optional binary source (UTF8); optional double loss; \
    required double tokens; required int64 steps; }";
const DETAILS: &str = "message losses { required int64 step; required int64 slice; required int64 row; \
    required double loss; required double tokens; required binary documents (UTF8); optional int64 first_token; \
    required boolean of_row; }";
/// Lines of a row group.
const GROUP: usize = 1 << 17;

type Group<'g> = SerializedRowGroupWriter<'g, BufWriter<File>>;
type Written = parquet::errors::Result<()>;

/// Writes the lines of a table.
pub(super) fn write(path: &Path, table: &Table) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let beside = path.with_file_name(format!(".{}.part", name.to_string_lossy()));
    let result = write_to(&beside, table).and_then(|()| fs::rename(&beside, path));
    if result.is_err() {
        // It may not exist: the first error says why.
        let _ = fs::remove_file(&beside);
    }
    result
}

fn write_to(path: &Path, table: &Table) -> io::Result<()> {
    match table {
        Table::Steps(all) => file(path, STEPS, all, steps),
        Table::Sources(all) => file(path, SOURCES, all, sources),
        Table::Details(all) => file(path, DETAILS, all, details),
        Table::Written(..) => Ok(()),
    }
}

fn file<T>(
    path: &Path,
    schema: &str,
    all: &[T],
    columns: impl Fn(&mut Group<'_>, &[T]) -> Written,
) -> io::Result<()> {
    let schema = parse_message_type(schema).map_err(io::Error::other)?;
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression);
    let file = BufWriter::new(File::create(path)?);
    let write = || {
        let properties = Arc::new(properties.build());
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), properties)?;
        for some in all.chunks(GROUP) {
            let mut group = writer.next_row_group()?;
            columns(&mut group, some)?;
            group.close()?;
        }
        writer.into_inner()
    };
    let file = write().map_err(io::Error::other)?;
    file.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()
}

fn steps(group: &mut Group<'_>, all: &[StepLoss]) -> Written {
    numbers(group, all, |one| one.step)?;
    numbers(group, all, |one| one.attempt)?;
    optional::<DoubleType, _>(group, all, |one| one.loss)?;
    column::<DoubleType, _>(group, all, |one| one.tokens)?;
    numbers(group, all, |one| one.nonfinite)?;
    numbers(group, all, |one| one.coordinates)?;
    numbers(group, all, |one| one.of.into())
}

fn sources(group: &mut Group<'_>, all: &[SourceLoss]) -> Written {
    numbers(group, all, |one| one.number.into())?;
    optional::<ByteArrayType, _>(group, all, |one| one.source.as_deref().map(ByteArray::from))?;
    optional::<DoubleType, _>(group, all, |one| one.loss)?;
    column::<DoubleType, _>(group, all, |one| one.tokens)?;
    numbers(group, all, |one| one.steps)
}

fn details(group: &mut Group<'_>, all: &[DetailLoss]) -> Written {
    numbers(group, all, |one| one.step)?;
    numbers(group, all, |one| one.slice.into())?;
    numbers(group, all, |one| one.row)?;
    column::<DoubleType, _>(group, all, |one| one.loss)?;
    column::<DoubleType, _>(group, all, |one| one.tokens)?;
    column::<ByteArrayType, _>(group, all, |one| one.documents.join("\n").as_str().into())?;
    optional::<Int64Type, _>(group, all, |one| one.first_token.map(u64::cast_signed))?;
    column::<BoolType, _>(group, all, |one| one.of_row)
}

fn numbers<T>(group: &mut Group<'_>, all: &[T], of: impl Fn(&T) -> u64) -> Written {
    column::<Int64Type, _>(group, all, |one| of(one).cast_signed())
}

fn column<D: DataType, T>(group: &mut Group<'_>, all: &[T], of: impl Fn(&T) -> D::T) -> Written {
    let values: Vec<D::T> = all.iter().map(of).collect();
    values_of::<D>(group, &values, None)
}

fn optional<D: DataType, T>(
    group: &mut Group<'_>,
    all: &[T],
    of: impl Fn(&T) -> Option<D::T>,
) -> Written {
    let found: Vec<Option<D::T>> = all.iter().map(of).collect();
    let levels: Vec<i16> = found.iter().map(|one| i16::from(one.is_some())).collect();
    let values: Vec<D::T> = found.into_iter().flatten().collect();
    values_of::<D>(group, &values, Some(&levels))
}

fn values_of<D: DataType>(
    group: &mut Group<'_>,
    values: &[D::T],
    levels: Option<&[i16]>,
) -> Written {
    if let Some(mut column) = group.next_column()? {
        column.typed::<D>().write_batch(values, levels, None)?;
        column.close()?;
    }
    Ok(())
}
