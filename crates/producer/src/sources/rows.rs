//! The rows of a Parquet file, as texts, samples or conversations.

use std::ops::Range;

use batchweave_daemon::panics::Panic;

use super::cell::Cell;
use super::cells::CellRows;
use super::columns::ColumnRows;
use super::conversations::ConversationRows;
use super::inbox::owner;
use super::row_groups::RowGroups;
use super::unit_reader::ReadFailure;
use super::{InputFile, ReadContent, ReadOptions, Reason};

/// A cursor over the rows of a file.
pub(super) struct Rows {
    content: ContentRows,
    /// More columns of the same rows.
    beside: Option<Box<CellRows>>,
}

enum ContentRows {
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
        let columns = (!options.beside.is_empty()).then_some(&options.beside);
        let beside = columns.map(|columns| CellRows::open(file, columns, rows.clone()));
        Ok(Self {
            beside: beside.transpose()?.map(Box::new),
            content: ContentRows::open(file, options, rows)?,
        })
    }

    /// Returns the number of rows in the file.
    pub(super) fn total(&self) -> u64 {
        self.content.groups().rows()
    }

    /// Returns why `file`, which lies in an inbox, is not the one that its name says; `None` if it is.
    pub(super) fn foreign(&self, file: &InputFile) -> Option<String> {
        let groups = self.content.groups();
        let writer = groups.key_value("batchweave.writer");
        let number = groups.key_value("batchweave.number");
        owner::foreign(&file.pin.name, writer, number)
    }

    /// Returns the number, bytes and cells of the next row.
    pub(super) fn next(&mut self) -> Result<Option<(u64, NextRow)>, ReadFailure> {
        let row = self.content.next()?;
        let Some(beside) = &mut self.beside else {
            return Ok(row);
        };
        match (row, beside.next()?) {
            (Some((number, value)), Some((same, cells))) if number == same => {
                let both = value.and_then(|(bytes, mut own)| {
                    own.extend(cells?);
                    Ok((bytes, own))
                });
                Ok(Some((number, both)))
            }
            (None, None) => Ok(None),
            _ => {
                let detail = "its columns have different numbers of rows".to_owned();
                Err(Reason::BrokenParquet { detail }.into())
            }
        }
    }
}

impl ContentRows {
    fn open(
        file: &InputFile,
        options: &ReadOptions,
        rows: Range<u64>,
    ) -> Result<Self, ReadFailure> {
        if let ReadContent::Conversations(columns) | ReadContent::Rows(columns) = &options.content {
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

    fn next(&mut self) -> Result<Option<(u64, NextRow)>, ReadFailure> {
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

/// The bytes and the cells of a row.
pub(super) type NextRow = Result<(Vec<u8>, Vec<Cell>), Reason>;
