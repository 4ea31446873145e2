//! Opens Parquet files, for `read`.

use batchweave_daemon::panics::guard;

use super::cells::Cell;
use super::columns::ReadFailure;
use super::read::{FileReader, Kind};
use super::rows::{Rows, panicked};
use super::{Place, Reason, SourceError, Unit};

impl FileReader<'_> {
    /// Opens a Parquet file at the row of `self.at`; row groups from row `to` on are left out.
    pub(super) fn open_parquet(&mut self, to: u64) -> Result<(), SourceError> {
        let rows = self.at.unit..to;
        let open = || Rows::open(self.file, self.options, rows);
        self.kind = match guard(open).unwrap_or_else(panicked) {
            Ok(rows) => Kind::Parquet(rows.in_place(self.file, self.options)?),
            Err(ReadFailure::Content(reason)) => {
                self.check_size()?;
                Kind::Failed(reason)
            }
            Err(ReadFailure::Io(why)) => return Err(self.unreadable(why)),
        };
        Ok(())
    }

    /// Returns the next row that belongs to this producer.
    pub(super) fn row(&mut self, mut rows: Rows) -> Result<Option<Unit>, SourceError> {
        loop {
            // A damaged file may make the parquet library panic; its reader is then dropped.
            let (row, value) = match guard(|| rows.next()).unwrap_or_else(panicked) {
                Ok(None) => return Ok(None),
                Ok(Some(row)) => row,
                Err(ReadFailure::Content(reason)) => {
                    self.check_size()?;
                    return Ok(self.bad(reason));
                }
                Err(ReadFailure::Io(why)) => return Err(self.unreadable(why)),
            };
            let place = Place {
                unit: row,
                ..self.at
            };
            self.at.unit = row + 1;
            if self.options.share.owns(place.file, row) {
                self.kind = Kind::Parquet(rows);
                let limit = self.options.max_document_bytes;
                let value = value.and_then(|(bytes, cells)| {
                    let size = bytes.len() as u64 + cells.iter().map(Cell::size).sum::<u64>();
                    if size > limit {
                        Err(Reason::TooLong { limit })
                    } else {
                        Ok((bytes, cells))
                    }
                });
                let (raw, cells) = match value {
                    Ok((bytes, cells)) => (Ok(bytes.into()), cells),
                    Err(reason) => (Err(reason), Vec::new()),
                };
                return Ok(Some(Unit {
                    place,
                    kind: self.unit_kind,
                    raw,
                    cells,
                }));
            }
        }
    }
}
