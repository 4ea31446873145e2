//! The measured documents as lines, Parquet and zstd.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use batchweave_console::CliError;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::error::bench_error;

const SCHEMA: &str = "message documents { required binary text (UTF8); }";

/// Writes a Parquet file with a row group per `rows` documents. Returns the bytes of text of each row group.
pub(super) fn parquet(
    path: &Path,
    documents: &[String],
    rows: usize,
) -> Result<Vec<(u64, u64)>, CliError> {
    let schema = parse_message_type(SCHEMA).map_err(bench_error)?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let file = BufWriter::new(File::create(path)?);
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))
            .map_err(bench_error)?;
    let mut groups = Vec::new();
    for some in documents.chunks(rows.max(1)) {
        let values: Vec<ByteArray> = some.iter().map(|text| text.as_str().into()).collect();
        let mut group = writer.next_row_group().map_err(bench_error)?;
        if let Some(mut column) = group.next_column().map_err(bench_error)? {
            let typed = column.typed::<ByteArrayType>();
            let written = typed.write_batch(&values, None, None);
            written.map_err(bench_error)?;
            column.close().map_err(bench_error)?;
        }
        group.close().map_err(bench_error)?;
        let bytes: usize = some.iter().map(String::len).sum();
        groups.push((some.len() as u64, bytes as u64));
    }
    writer.close().map_err(bench_error)?;
    Ok(groups)
}

/// Writes lines of JSON until they have `bytes` bytes, with `documents` over and over.
pub(super) fn lines(to: impl Write, documents: &[String], bytes: u64) -> Result<(), CliError> {
    let mut to = BufWriter::with_capacity(1 << 20, to);
    let mut written = 0;
    for (n, text) in (0_u64..).zip(documents.iter().cycle()) {
        if written >= bytes {
            break;
        }
        let mut line = serde_json::json!({ "text": text, "id": n }).to_string();
        line.push('\n');
        to.write_all(line.as_bytes())?;
        written += line.len() as u64;
    }
    to.flush()?;
    Ok(())
}

/// Writes such lines in one zstd frame.
pub(super) fn packed_lines(path: &Path, documents: &[String], bytes: u64) -> Result<(), CliError> {
    let mut packed = zstd::Encoder::new(File::create(path)?, 1)?;
    lines(&mut packed, documents, bytes)?;
    packed.finish()?;
    Ok(())
}
