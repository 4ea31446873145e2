//! The metadata of an inbox's file, from its last bytes.

use batchweave_console::CliError;
use batchweave_store::{Store, StoreError};
use futures::TryStreamExt;
use parquet::file::metadata::ParquetMetaDataReader;

/// Bytes of the length and the magic number at the end of a file.
const END_BYTES: u64 = 8;
/// The first request; the footers of most files are smaller.
const FIRST_BYTES: u64 = 64 << 10;
const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// The rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// The number of its first row, among all of the writer.
    pub(super) first_row: u64,
    pub(super) rows: u64,
}

impl Footer {
    /// Returns the number of the row after its last.
    pub(super) fn end(self) -> u64 {
        self.first_row.saturating_add(self.rows)
    }
}

/// Reads the footer of the file `key` of this size.
pub(super) async fn read(store: &dyn Store, key: &str, size: u64) -> Result<Footer, CliError> {
    let broken = |why: &str| CliError::Unsound(format!("{}/{key}: {why}", store.root()));
    let mut tail = range(store, key, size.saturating_sub(FIRST_BYTES), size).await?;
    let end = tail
        .len()
        .checked_sub(END_BYTES as usize)
        .and_then(|at| tail[at..].first_chunk::<4>());
    let length = end
        .map(|bytes| u64::from(u32::from_le_bytes(*bytes)) + END_BYTES)
        .filter(|length| *length <= size.min(FOOTER_BYTES_MAX))
        .ok_or_else(|| broken("not readable as Parquet"))?;
    if length > tail.len() as u64 {
        tail = range(store, key, size - length, size).await?;
    }
    let footer = &tail[tail.len() - length as usize..tail.len() - END_BYTES as usize];
    let metadata = ParquetMetaDataReader::decode_metadata(footer)
        .map_err(|why| broken(&format!("not readable as Parquet ({why})")))?;
    let file = metadata.file_metadata();
    let pairs = file.key_value_metadata().map_or(&[][..], |pairs| pairs);
    let first = pairs
        .iter()
        .find(|pair| pair.key == "batchweave.first_row")
        .and_then(|pair| pair.value.as_deref()?.parse().ok());
    let (first_row, rows): (u64, _) = (first.unwrap_or(0), file.num_rows().unsigned_abs());
    if first_row.checked_add(rows).is_none() {
        return Err(broken(
            "batchweave.first_row is larger than any row's number",
        ));
    }
    Ok(Footer { first_row, rows })
}

async fn range(store: &dyn Store, key: &str, from: u64, to: u64) -> Result<Vec<u8>, StoreError> {
    if from >= to {
        return Ok(Vec::new());
    }
    let chunks: Vec<_> = store.get_range(key, from..to).await?.try_collect().await?;
    Ok(chunks.concat())
}
