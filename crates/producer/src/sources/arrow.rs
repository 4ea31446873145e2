//! Tables in Arrow's IPC formats: the file format, which is Feather's second version too, and the stream format, as
//! Hugging Face's datasets are saved. Both are read batch after batch; a file that is not compressed has them where its
//! footer says.
//!
//! Format: <https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc>.

use arrow_array::RecordBatch;
use batchweave_daemon::panics::guard;

use super::Reason;
use super::cell::Cell;
use super::file_stream::FileStream;
use super::rows::panicked;
use super::unit_reader::{Content, FoundUnit, Opened, Opening, Outcome, UnitReader};
use batches::Batches;
use columns::Columns;

mod batches;
mod columns;
mod footer;
mod frames;
mod json;
mod values;

/// Opens a file of Arrow at the beginning or behind some of its rows.
pub(super) fn open_arrow<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let (options, number) = (opening.options, opening.at.unit);
    let stream = opening.stream;
    let Some(mut batches) = guard(|| Batches::open(stream)).unwrap_or_else(panicked)? else {
        return Ok(None);
    };
    let columns = Columns::find(batches.schema(), options)?;
    batches.select(columns.decoded().to_vec());
    Ok(Some(Box::new(ArrowUnits {
        columns,
        batches,
        batch: None,
        next_in_batch: 0,
        behind: number,
        number,
        limit: options.max_document_bytes,
    })))
}

/// Returns the names of the columns of a file; none of an empty one.
pub(super) fn arrow_columns(stream: &mut FileStream<'_>) -> Outcome<Vec<String>> {
    let batches = guard(|| Batches::open(stream)).unwrap_or_else(panicked)?;
    let names = batches.iter().flat_map(|batches| batches.schema().fields());
    Ok(names.map(|field| field.name().clone()).collect())
}

/// The rows of a file from one on.
struct ArrowUnits {
    columns: Columns,
    batches: Batches,
    batch: Option<RecordBatch>,
    next_in_batch: usize,
    /// Rows that are still passed over, without being decoded where a batch has no others.
    behind: u64,
    /// The number of the next row.
    number: u64,
    limit: u64,
}

impl ArrowUnits {
    /// Goes to the next row. Returns whether there is one.
    fn reach(&mut self) -> Outcome<bool> {
        loop {
            let rows = self.batch.as_ref().map_or(0, RecordBatch::num_rows);
            if self.next_in_batch < rows {
                return Ok(true);
            }
            let Some(batch) = self.batches.next(&mut self.behind)? else {
                self.batch = None;
                return Ok(false);
            };
            self.next_in_batch = usize::try_from(self.behind).unwrap_or(usize::MAX);
            (self.behind, self.batch) = (0, Some(batch));
        }
    }

    fn content(&self, row: usize) -> Result<Content, Reason> {
        let batch = self.batch.as_ref().ok_or(Reason::Null)?;
        let (bytes, cells) = self.columns.row(batch, row)?;
        let size = bytes.len() as u64 + cells.iter().map(Cell::size).sum::<u64>();
        if size > self.limit {
            return Err(Reason::TooLong { limit: self.limit });
        }
        let raw = bytes.into();
        Ok(Content { raw, cells })
    }
}

impl UnitReader for ArrowUnits {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Outcome<Option<FoundUnit>> {
        loop {
            // A damaged file may make the library panic.
            if !guard(|| self.reach()).unwrap_or_else(panicked)? {
                return Ok(None);
            }
            let (number, row) = (self.number, self.next_in_batch);
            self.number += 1;
            self.next_in_batch += 1;
            if owned(number) {
                return Ok(Some(FoundUnit {
                    number,
                    offset: 0,
                    content: guard(|| self.content(row)).unwrap_or_else(|panic| {
                        let panic = panic.to_string();
                        Err(Reason::Panicked { panic })
                    }),
                }));
            }
        }
    }

    fn place(&self) -> (u64, u64) {
        (self.number, 0)
    }

    fn consumed(&self, packed: Option<u64>, size: u64) -> u64 {
        packed.unwrap_or(self.batches.offset()).min(size)
    }
}

#[cfg(test)]
mod tests;
