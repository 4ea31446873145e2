//! Reads the units of one file from any place on, in every format and compression.

use super::file_stream::{FileStream, Stream};
use super::read_lines::LineUnits;
use super::read_options::{ReadContent, ReadOptions};
use super::unit_reader::{Content, FoundUnit, Opening, ReadFailure, UnitReader};
use super::{InputFile, InputList, Place, Reason, SourceError, Unit, UnitKind};

/// Reads this producer's units of one file in order.
pub struct FileReader<'a> {
    pub(super) stream: FileStream<'a>,
    options: &'a ReadOptions,
    unit_kind: UnitKind,
    /// Place of the next unit.
    pub(super) at: Place,
    pub(super) state: State<'a>,
}

pub(super) enum State<'a> {
    Open(Box<dyn UnitReader + 'a>),
    /// The file failed to open in a way that counts as one bad document.
    Failed(Reason),
    Done,
}

impl<'a> FileReader<'a> {
    /// Opens the file of `list` that `from` names, at `from`, a place that an earlier reader of the same file returned.
    pub fn open_in(
        list: &'a InputList,
        options: &'a ReadOptions,
        from: Place,
    ) -> Result<Option<Self>, SourceError> {
        Self::open_part(list, options, from, Part::default())
    }

    /// Opens `file` at `from`; of a pair of files use [`Self::open_in`].
    pub fn open(
        file: &'a InputFile,
        options: &'a ReadOptions,
        from: Place,
    ) -> Result<Self, SourceError> {
        let mut reader = Self::closed(file, options, from);
        reader.begin(None, u64::MAX)?;
        Ok(reader)
    }

    /// Opens a part of the file of `list` that `from` names.
    pub(super) fn open_part(
        list: &'a InputList,
        options: &'a ReadOptions,
        from: Place,
        part: Part,
    ) -> Result<Option<Self>, SourceError> {
        let Some(file) = list.files.get(from.file as usize) else {
            return Ok(None);
        };
        let mut reader = Self::closed(file, options, from);
        if let Some(begun) = part.begun {
            reader.stream.begin(begun);
        }
        reader.begin(Some(&list.files), part.rows_to)?;
        Ok(Some(reader))
    }

    /// Opens the uncompressed file that `from` names at the first line that begins at its offset or behind; `stream`
    /// begins at the byte before, if there is one.
    pub(super) fn open_lines(
        list: &'a InputList,
        options: &'a ReadOptions,
        from: Place,
        stream: Stream,
    ) -> Result<Option<Self>, SourceError> {
        let Some(file) = list.files.get(from.file as usize) else {
            return Ok(None);
        };
        let mut reader = Self::closed(file, options, from);
        let lines = LineUnits::behind(from.offset, stream, options)
            .map_err(|why| reader.stream.unreadable(why))?;
        (reader.at.unit, reader.at.offset) = lines.place();
        reader.state = State::Open(Box::new(lines));
        Ok(Some(reader))
    }

    /// Returns a reader that has no bytes yet.
    fn closed(file: &'a InputFile, options: &'a ReadOptions, at: Place) -> Self {
        let ids = matches!(options.content, ReadContent::Ids { .. });
        Self {
            stream: FileStream::new(file, options.decompress_memory),
            options,
            unit_kind: options.format.units(&file.pin.name, ids),
            at,
            state: State::Done,
        }
    }

    /// Opens the file at `self.at`; rows from `rows_to` on are left out.
    fn begin(&mut self, files: Option<&'a [InputFile]>, rows_to: u64) -> Result<(), SourceError> {
        let row = self.options.format.row_of(&self.stream.file.pin.name);
        let opened = (row.open)(Opening {
            files,
            options: self.options,
            stream: &mut self.stream,
            at: self.at,
            rows_to,
        });
        self.state = match opened {
            Ok(Some(units)) => State::Open(units),
            Ok(None) => State::Done,
            Err(why) => State::Failed(self.fault(why)?),
        };
        Ok(())
    }

    /// Returns this producer's next unit; `None` at the end of the file.
    pub fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        let mut units = match std::mem::replace(&mut self.state, State::Done) {
            State::Done => return Ok(None),
            State::Failed(reason) => return Ok(self.bad(reason)),
            State::Open(units) => units,
        };
        let (share, file) = (self.options.share, self.at.file);
        let found = units.next(&|unit| share.owns(file, unit));
        (self.at.unit, self.at.offset) = units.place();
        match found {
            Ok(None) => Ok(None),
            Ok(Some(found)) => {
                if !units.is_whole() {
                    self.state = State::Open(units);
                }
                Ok(Some(self.unit(found)))
            }
            // Damage ends the file with one bad document.
            Err(why) => self.fault(why).map(|reason| self.bad(reason)),
        }
    }

    /// Returns the bytes of the stored file up to the next unit: exact for lines and tars, by the number of rows for
    /// Parquet.
    pub fn consumed(&self) -> u64 {
        let size = self.stream.file.pin.size;
        match &self.state {
            State::Done | State::Failed(_) => size,
            State::Open(units) => units.consumed(self.stream.packed(), size),
        }
    }

    fn unit(&self, found: FoundUnit) -> Unit {
        let (raw, cells) = match found.content {
            Ok(Content { raw, cells }) => (Ok(raw), cells),
            Err(reason) => (Err(reason), Vec::new()),
        };
        Unit {
            place: Place {
                file: self.at.file,
                unit: found.number,
                offset: found.offset,
            },
            kind: self.unit_kind,
            raw,
            cells,
        }
    }

    /// Returns why the rest of the file is one bad document, unless the file or the input can't be read at all.
    fn fault(&self, why: ReadFailure) -> Result<Reason, SourceError> {
        match why {
            ReadFailure::Content(reason) => {
                self.stream.check_size()?;
                Ok(reason)
            }
            ReadFailure::Io(why) => self.stream.damage(why),
            ReadFailure::Input(why) => Err(why),
        }
    }

    /// Returns a bad unit at the current place, if it belongs to this producer.
    fn bad(&self, reason: Reason) -> Option<Unit> {
        let ours = self.options.share.owns(self.at.file, self.at.unit);
        ours.then(|| {
            self.unit(FoundUnit {
                number: self.at.unit,
                offset: self.at.offset,
                content: Err(reason),
            })
        })
    }
}

/// A part of a file, and what is there of its bytes.
pub(super) struct Part {
    /// The bytes from the beginning on, when they are requested already.
    pub(super) begun: Option<Stream>,
    /// Rows from this one on are left out.
    pub(super) rows_to: u64,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            begun: None,
            rows_to: u64::MAX,
        }
    }
}
