//! The rows of a Parquet file, as texts, samples or conversations.

use std::ops::Range;

use batchweave_daemon::panics::Panic;

use super::cells::{Cell, CellRows};
use super::columns::{ColumnRows, ReadFailure};
use super::conversations::ConversationRows;
use super::inbox;
use super::row_groups::RowGroups;
use super::{InputFile, ReadContent, ReadOptions, Reason};

/// A cursor over the rows of a file.
pub(super) enum Rows {
    Texts(Box<ColumnRows>),
    Samples(Box<CellRows>),
    Conversations(Box<ConversationRows>),
}

impl Rows {
    /// Opens `file` at the beginning of `rows`. Row groups behind them are left out.
    pub(super) fn open(
        file: &InputFile,
        options: &ReadOptions,
        rows: Range<u64>,
    ) -> Result<Self, ReadFailure> {
        if let ReadContent::Conversations(columns) = &options.content {
            let rows = ConversationRows::open(file, columns, rows)?;
            return Ok(Self::Conversations(Box::new(rows)));
        }
        if matches!(options.content, ReadContent::Ids { .. }) {
            let rows = CellRows::open_lists(file, &options.column, rows)?;
            return Ok(Self::Samples(Box::new(rows)));
        }
        if options.arrays.is_empty() {
            let rows = ColumnRows::open(file, &options.column, rows)?;
            return Ok(Self::Texts(Box::new(rows)));
        }
        let rows = CellRows::open(file, &options.arrays, rows)?;
        Ok(Self::Samples(Box::new(rows)))
    }

    fn groups(&self) -> &RowGroups {
        match self {
            Self::Texts(rows) => rows.groups(),
            Self::Samples(rows) => rows.groups(),
            Self::Conversations(rows) => rows.groups(),
        }
    }

    /// Returns the number of rows in the file.
    pub(super) fn total(&self) -> u64 {
        self.groups().rows()
    }

    /// Returns why a file of this name is not the one that its writer put there.
    pub(super) fn foreign(&self, name: &str) -> Option<String> {
        let groups = self.groups();
        inbox::foreign(
            name,
            groups.key_value("batchweave.writer"),
            groups.key_value("batchweave.number"),
        )
    }

    /// Returns the number, bytes and cells of the next row.
    pub(super) fn next(&mut self) -> Result<Option<NextRow>, ReadFailure> {
        Ok(match self {
            Self::Texts(rows) => rows
                .next()?
                .map(|(row, text)| (row, text.map(|t| (t.data().to_vec(), Vec::new())))),
            Self::Conversations(rows) => rows
                .next()?
                .map(|(row, json)| (row, json.map(|json| (json, Vec::new())))),
            Self::Samples(rows) => rows
                .next()?
                .map(|(row, cells)| (row, cells.map(|cells| (Vec::new(), cells)))),
        })
    }
}

pub(super) fn panicked<T>(panic: Panic) -> Result<T, ReadFailure> {
    Err(ReadFailure::Content(Reason::Panicked {
        panic: panic.to_string(),
    }))
}

type NextRow = (u64, Result<(Vec<u8>, Vec<Cell>), Reason>);
