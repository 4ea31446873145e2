//! Lines as units.

use std::io;

use super::file_stream::Stream;
use super::line::Line;
use super::lines::Lines;
use super::unit_reader::{FoundUnit, Opened, Opening, ReadFailure, UnitReader};
use super::{ReadOptions, Reason};

/// The buffer of a range of lines, of which many are open at a time.
const RANGE_BUFFER_BYTES: usize = 64 << 10;
/// The buffer of a file of lines.
const FILE_BUFFER_BYTES: usize = 256 << 10;

/// The lines of a file.
pub(super) struct LineUnits {
    lines: Lines,
    limit: u64,
    number: u64,
    offset: u64,
}

/// Opens a file of lines.
pub(super) fn open_lines<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let (at, options) = (opening.at, opening.options);
    let stream = opening.stream.open_at(at.offset)?;
    Ok(Some(Box::new(LineUnits {
        lines: Lines::new(stream, FILE_BUFFER_BYTES, options.shares_memory()),
        limit: options.max_document_bytes,
        number: at.unit,
        offset: at.offset,
    })))
}

impl LineUnits {
    /// Returns the lines that begin at offset `from` or behind, numbered from 0; `stream` begins at the byte before, if
    /// there is one, since that says whether a line begins at `from`.
    pub(super) fn behind(from: u64, stream: Stream, options: &ReadOptions) -> io::Result<Self> {
        let mut units = Self {
            lines: Lines::new(stream, RANGE_BUFFER_BYTES, options.shares_memory()),
            limit: options.max_document_bytes,
            number: 0,
            offset: from.saturating_sub(1),
        };
        if from > 0 {
            units.offset += match units.lines.next(0, false)? {
                Line::End => 0,
                Line::Whole { bytes, .. } | Line::Skipped { bytes, .. } => bytes,
            };
        }
        Ok(units)
    }
}

impl UnitReader for LineUnits {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        let limit = self.limit;
        loop {
            let (number, offset) = self.place();
            let ours = owned(number);
            let line = self.lines.next(limit, ours).map_err(ReadFailure::Io)?;
            let (bytes, content) = match line {
                Line::End => return Ok(None),
                Line::Whole { text, bytes } => (bytes, Ok(text.into())),
                Line::Skipped { bytes, .. } => (bytes, Err(Reason::TooLong { limit })),
            };
            self.number += 1;
            self.offset += bytes;
            if ours {
                return Ok(Some(FoundUnit {
                    number,
                    offset,
                    content,
                }));
            }
        }
    }

    fn place(&self) -> (u64, u64) {
        (self.number, self.offset)
    }
}
