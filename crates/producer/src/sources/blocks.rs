//! Reads the blocks of a source in any order: ranges of lines, row groups, and runs of whole files.

use std::collections::VecDeque;
use std::io::Read;

use batchweave_core::order::{Documents, OpenBlock, Span};

use super::{FileReader, InputList, Location, Place, ReadOptions, SourceError, Unit, remote};

/// The files of a source, whose blocks can be opened.
#[derive(Debug, Clone, Copy)]
pub struct SourceFiles<'a> {
    pub list: &'a InputList,
    /// The settings; all units of a block are read, whatever the share.
    pub options: &'a ReadOptions,
}

/// A part of a block in one file.
#[derive(Debug, Clone, Copy)]
enum Part {
    Whole(u32),
    Lines(u32, u64, u64),
    Rows(u32, u64, u64),
}

/// The units of a block.
pub struct BlockReader<'a> {
    files: SourceFiles<'a>,
    parts: VecDeque<Part>,
    /// The bytes of a part in an object, which are requested before they are needed.
    ahead: Option<Box<dyn Read + Send>>,
    open: Option<(FileReader<'a>, Part)>,
    /// Units to leave out before the first.
    skip: u64,
}

impl<'a> Documents for SourceFiles<'a> {
    type Document = Unit;
    type Error = SourceError;
    type Reader = BlockReader<'a>;

    fn open(&mut self, open: &OpenBlock, from: u64) -> Result<BlockReader<'a>, SourceError> {
        let (parts, skip): (VecDeque<Part>, u64) = match open.block.span {
            Span::Lines {
                file,
                from: begin,
                to,
            } => ([Part::Lines(file, begin, to)].into(), from),
            // Rows are found by their number.
            Span::Rows {
                file,
                from: begin,
                to,
            } => ([Part::Rows(file, (begin + from).min(to), to)].into(), 0),
            Span::Files { first, last } => ((first..=last).map(Part::Whole).collect(), from),
        };
        let ahead = match parts.front() {
            Some(&Part::Lines(file, from, to)) if self.is_remote(file) => {
                Some(self.lines(file, from, to)?)
            }
            _ => None,
        };
        Ok(BlockReader {
            files: *self,
            parts,
            ahead,
            open: None,
            skip,
        })
    }

    fn bytes(unit: &Unit) -> u64 {
        unit.bytes() as u64
    }
}

impl SourceFiles<'_> {
    fn is_remote(&self, file: u32) -> bool {
        let file = self.list.files.get(file as usize);
        file.is_some_and(|file| matches!(file.location, Location::Remote { .. }))
    }

    /// Returns the bytes of a range of lines, from the byte before it on.
    fn lines(&self, file: u32, from: u64, to: u64) -> Result<Box<dyn Read + Send>, SourceError> {
        let Some(file) = self.list.files.get(file as usize) else {
            return Ok(Box::new(std::io::empty()));
        };
        let stream = remote::open_range(file, from.saturating_sub(1), to);
        stream.map_err(|why| SourceError::Unreadable {
            file: file.pin.name.clone(),
            why,
        })
    }
}

impl<'a> BlockReader<'a> {
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        loop {
            if self.open.is_none() {
                let Some(part) = self.parts.pop_front() else {
                    return Ok(None);
                };
                self.open = self.open_part(part)?.map(|reader| (reader, part));
                continue;
            }
            let Some((reader, part)) = &mut self.open else {
                continue;
            };
            match reader.next_unit()?.filter(|unit| part.holds(unit.place)) {
                None => self.open = None,
                Some(_) if self.skip > 0 => self.skip -= 1,
                Some(mut unit) => {
                    let file = self.files.list.files.get(unit.place.file as usize);
                    if file.is_some_and(|file| file.pin.by_byte) {
                        unit.place.unit = unit.place.offset;
                    }
                    return Ok(Some(unit));
                }
            }
        }
    }

    fn open_part(&mut self, part: Part) -> Result<Option<FileReader<'a>>, SourceError> {
        let SourceFiles { list, options } = self.files;
        match part {
            Part::Whole(file) => FileReader::open_in(
                list,
                options,
                Place {
                    file,
                    ..Place::default()
                },
            ),
            Part::Rows(file, unit, _) => FileReader::open_in(
                list,
                options,
                Place {
                    file,
                    unit,
                    offset: 0,
                },
            ),
            Part::Lines(file, from, to) => {
                let stream = match self.ahead.take() {
                    Some(stream) => stream,
                    None => self.files.lines(file, from, to)?,
                };
                FileReader::open_lines(list, options, (file, from), stream)
            }
        }
    }
}

impl Part {
    /// Returns whether the unit belongs to the part, and not to the one behind it.
    fn holds(self, place: Place) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Lines(_, _, to) => place.offset < to,
            Self::Rows(_, _, to) => place.unit < to,
        }
    }
}

impl Iterator for BlockReader<'_> {
    type Item = Result<Unit, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_unit().transpose()
    }
}

#[cfg(test)]
mod tests;
