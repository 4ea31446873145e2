//! The work of a format: it reads the units of an open file, one after another.
//!
//! A new format is a [`UnitReader`], a row of the table of `formats`, and a page of the docs.

use std::io;

use bytes::Bytes;

use super::cell::Cell;
use super::file_stream::FileStream;
use super::input_file::InputFile;
use super::read_options::ReadOptions;
use super::{Place, Reason, SourceError};

/// A unit as a format finds it.
pub(super) struct FoundUnit {
    /// Its number in the file, from 0.
    pub(super) number: u64,
    /// Its offset in the decompressed file, for a quick seek, or 0.
    pub(super) offset: u64,
    pub(super) content: Result<Content, Reason>,
}

/// The content of a unit, which is still to be decoded.
#[derive(Default)]
pub(super) struct Content {
    pub(super) raw: Bytes,
    pub(super) cells: Vec<Cell>,
}

impl From<Bytes> for Content {
    fn from(raw: Bytes) -> Self {
        Self {
            raw,
            cells: Vec::new(),
        }
    }
}

/// A cursor over the units of one file. After a failure it is dropped.
pub(super) trait UnitReader: Send {
    /// Returns the next unit that is `owned`; `None` at the end.
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure>;

    /// Returns the number and offset of the unit that is read next, from which another reader can continue.
    fn place(&self) -> (u64, u64);

    /// Returns whether the unit that was returned last is the only one.
    fn is_whole(&self) -> bool {
        false
    }

    /// Returns the bytes of the stored file, which has `size`, up to the next unit; `packed` of them were decompressed.
    fn consumed(&self, packed: Option<u64>, size: u64) -> u64 {
        let (_, offset) = self.place();
        packed.unwrap_or(offset).min(size)
    }
}

/// The units of a file; `None` where none are left.
pub(super) type Opened<'a> = Result<Option<Box<dyn UnitReader + 'a>>, ReadFailure>;

/// A file that is opened.
pub(super) struct Opening<'a, 's> {
    /// All files of the input, where others may be needed.
    pub(super) files: Option<&'a [InputFile]>,
    pub(super) options: &'a ReadOptions,
    pub(super) stream: &'s mut FileStream<'a>,
    pub(super) at: Place,
    /// Rows from this one on are left out.
    pub(super) rows_to: u64,
}

/// The reason why a file can't be read further.
pub(super) enum ReadFailure {
    /// Its content, which counts as one bad document.
    Content(Reason),
    /// Its bytes could not be read, or not be decompressed.
    Io(io::Error),
    /// The input as a whole can't be read.
    Input(SourceError),
}

impl From<Reason> for ReadFailure {
    fn from(reason: Reason) -> Self {
        Self::Content(reason)
    }
}

impl From<SourceError> for ReadFailure {
    fn from(why: SourceError) -> Self {
        Self::Input(why)
    }
}

/// A result of reading a file.
pub(super) type Outcome<T> = Result<T, ReadFailure>;
