//! Reads the blocks of a source in any order: ranges of lines, row groups, and runs of whole files.

use std::collections::VecDeque;
use std::io::Read;

use batchweave_core::order::{Documents, OpenBlock, Span};

use super::formats::Shape;
use super::read;
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
    /// The bytes of the first parts, if they are objects: they are requested before they are needed.
    ahead: VecDeque<Box<dyn Read + Send>>,
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
        let mut reader = BlockReader {
            files: *self,
            parts,
            ahead: VecDeque::new(),
            open: None,
            skip,
        };
        reader.request()?;
        Ok(reader)
    }

    fn bytes(unit: &Unit) -> u64 {
        unit.bytes() as u64
    }
}

impl SourceFiles<'_> {
    /// Returns the bytes of a file, or of the lines that begin in `lines`, from the byte before on.
    fn bytes(
        &self,
        file: u32,
        lines: Option<(u64, u64)>,
    ) -> Result<Box<dyn Read + Send>, SourceError> {
        let Some(file) = self.list.files.get(file as usize) else {
            return Ok(Box::new(std::io::empty()));
        };
        let stream = match lines {
            Some((from, to)) => remote::open_lines(file, from.saturating_sub(1), to),
            None => remote::open_range(file, 0, file.pin.size),
        };
        stream.map_err(|why| SourceError::Unreadable {
            file: file.pin.name.clone(),
            why,
        })
    }

    /// Returns the shape of a file that is an object.
    fn remote_shape(&self, file: u32) -> Option<Shape> {
        let file = self.list.files.get(file as usize)?;
        let remote = matches!(file.location, Location::Remote { .. });
        remote.then(|| self.options.format.row_of(&file.pin.name).shape)
    }
}

impl<'a> BlockReader<'a> {
    /// Requests the first bytes of parts that are objects, so that those of many blocks are on their way together.
    fn request(&mut self) -> Result<(), SourceError> {
        for part in self.parts.clone() {
            let Some(shape) = self.files.remote_shape(part.file()) else {
                return Ok(());
            };
            match part {
                Part::Lines(file, from, to) => {
                    self.ahead
                        .push_back(self.files.bytes(file, Some((from, to)))?);
                }
                Part::Whole(file) if shape.is_stream() => {
                    self.ahead.push_back(self.files.bytes(file, None)?);
                }
                Part::Whole(_) => return Ok(()),
                Part::Rows(..) => {
                    self.parts.pop_front();
                    self.open = self.open_part(part)?.map(|reader| (reader, part));
                }
            }
        }
        Ok(())
    }

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
            // The unit behind the part is not read: of an object, its bytes would have to be requested.
            let next = if part.holds(reader.at) {
                reader.next_unit()?.filter(|unit| part.holds(unit.place))
            } else {
                None
            };
            match next {
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
        let ahead = self.ahead.pop_front();
        let at = Place::of_file(part.file());
        match part {
            Part::Whole(_) => {
                let begun = ahead;
                let whole = read::Part {
                    begun,
                    ..read::Part::default()
                };
                FileReader::open_part(list, options, at, whole)
            }
            Part::Rows(_, unit, rows_to) => {
                let rows = read::Part {
                    rows_to,
                    ..read::Part::default()
                };
                FileReader::open_part(list, options, Place { unit, ..at }, rows)
            }
            Part::Lines(file, offset, to) => {
                let stream = match ahead {
                    Some(stream) => stream,
                    None => self.files.bytes(file, Some((offset, to)))?,
                };
                FileReader::open_lines(list, options, Place { offset, ..at }, stream)
            }
        }
    }
}

impl Part {
    fn file(self) -> u32 {
        match self {
            Self::Whole(file) | Self::Lines(file, ..) | Self::Rows(file, ..) => file,
        }
    }

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
