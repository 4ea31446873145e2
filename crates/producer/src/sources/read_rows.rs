//! Rows of Parquet files as units.

use batchweave_daemon::panics::guard;

use super::cell::Cell;
use super::rows::{NextRow, Rows, panicked};
use super::unit_reader::{Content, FoundUnit, Opened, Opening, ReadFailure, UnitReader};
use super::{Reason, SourceError};

/// The rows of a file from one on.
struct RowUnits {
    rows: Rows,
    limit: u64,
    /// The number of the next row.
    number: u64,
}

/// Opens a Parquet file; row groups behind the wanted rows are left out.
pub(super) fn open_parquet<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let (file, options) = (opening.stream.file, opening.options);
    let wanted = opening.at.unit..opening.rows_to;
    let rows = guard(|| Rows::open(file, options, wanted)).unwrap_or_else(panicked)?;
    if let Some(why) = rows.foreign(file).filter(|_| options.inbox) {
        let folder = file.pin.name.clone();
        return Err(SourceError::Inbox { folder, why }.into());
    }
    Ok(Some(Box::new(RowUnits {
        rows,
        limit: options.max_document_bytes,
        number: opening.at.unit,
    })))
}

impl RowUnits {
    /// Returns the content of a row, unless it is too long.
    fn content(&self, value: NextRow) -> Result<Content, Reason> {
        let (bytes, cells) = value?;
        let size = bytes.len() as u64 + cells.iter().map(Cell::size).sum::<u64>();
        if size > self.limit {
            return Err(Reason::TooLong { limit: self.limit });
        }
        let raw = bytes.into();
        Ok(Content { raw, cells })
    }
}

impl UnitReader for RowUnits {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        loop {
            // A damaged file may make the parquet library panic.
            let next = guard(|| self.rows.next()).unwrap_or_else(panicked)?;
            let Some((number, value)) = next else {
                return Ok(None);
            };
            self.number = number + 1;
            if owned(number) {
                return Ok(Some(FoundUnit {
                    number,
                    offset: 0,
                    content: self.content(value),
                }));
            }
        }
    }

    fn place(&self) -> (u64, u64) {
        (self.number, 0)
    }

    fn consumed(&self, _: Option<u64>, size: u64) -> u64 {
        let share = u128::from(size) * u128::from(self.number);
        let bytes = share / u128::from(self.rows.total().max(1));
        u64::try_from(bytes).map_or(size, |bytes| bytes.min(size))
    }
}
