//! Reads the units of one file from any place on, in every format and compression.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::conversations::ConversationColumns;
use super::decompress::{Codec, Counted, DecoderMemory};
use super::ids::IdRows;
use super::lines::{Line, Lines};
use super::rows::Rows;
use super::shards::ShardSamples;
use super::whole::whole;
use super::{
    Format, InputFile, InputList, Place, Portion, Reason, SourceError, Unit, UnitKind, remote,
};

/// The buffer of a range of lines, of which many are open at a time.
const LINES_BUFFER_BYTES: usize = 64 << 10;
/// The buffer of a file of lines.
const BUFFER_BYTES: usize = 256 << 10;

/// The documents that units hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReadContent {
    /// Texts, or samples when there are columns of arrays.
    #[default]
    Documents,
    /// Conversations, in Parquet files with these columns.
    Conversations(ConversationColumns),
    /// Rows of Parquet files with all of these columns, for a function.
    Rows(ConversationColumns),
    /// Token ids; a list of them is divided at this end token.
    Ids { end_token: u32 },
}

/// The settings by which a file is read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The configured format; `Auto` selects by each file's name.
    pub format: Format,
    pub content: ReadContent,
    /// The text column of Parquet files.
    pub column: String,
    /// The columns of Parquet files whose rows are samples; empty when rows are texts.
    pub arrays: Vec<String>,
    /// The columns of Parquet files that come with each row besides; their cells are the last ones.
    pub beside: Vec<String>,
    /// The fields of a tar's samples that are read, each with its alternatives, as `jpg;png`.
    pub members: Vec<String>,
    /// Size of the longest document in bytes.
    pub max_document_bytes: u64,
    /// Most memory of the window of a decoder in bytes.
    pub decompress_memory: u64,
    /// This producer's share of the units.
    pub share: Portion,
    /// Most of these units are left out, so that those that are kept must not hold the memory of others.
    pub sparse: bool,
    /// Files must be those that their names in an inbox say.
    pub inbox: bool,
}

impl ReadOptions {
    /// Returns whether lines share the memory of what was read with them.
    fn shares_memory(&self) -> bool {
        self.share == Portion::ALL && !self.sparse
    }
}

/// Reads this producer's units of one file in order.
pub struct FileReader<'a> {
    pub(super) file: &'a InputFile,
    pub(super) options: &'a ReadOptions,
    pub(super) unit_kind: UnitKind,
    /// Place of the next unit.
    pub(super) at: Place,
    pub(super) codec: Codec,
    /// The first bytes of a compressed file.
    head: Vec<u8>,
    /// Bytes of a compressed file that the decoder has taken.
    pub(super) packed: Option<Arc<AtomicU64>>,
    pub(super) kind: Kind<'a>,
    /// The bytes from the beginning on, when they are requested already.
    begun: Option<Box<dyn Read + Send>>,
}

pub(super) enum Kind<'a> {
    Lines(Lines),
    Text(Box<dyn Read + Send>),
    Parquet(Rows),
    Ids(Box<dyn IdRows + 'a>),
    Shard(Box<ShardSamples>),
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
        let Some(file) = list.files.get(from.file as usize) else {
            return Ok(None);
        };
        if options.format == Format::Megatron {
            return Self::open_pair(list, file, options, from).map(Some);
        }
        Self::open(file, options, from).map(Some)
    }

    /// Opens `file` at `from`; of a pair of files use [`Self::open_in`].
    pub fn open(
        file: &'a InputFile,
        options: &'a ReadOptions,
        from: Place,
    ) -> Result<Self, SourceError> {
        let mut reader = Self::closed(file, options, from);
        reader.open_kind(u64::MAX)?;
        Ok(reader)
    }

    /// Opens file number `at` of `list` at its beginning, from which `begun` has the bytes.
    pub(super) fn open_begun(
        list: &'a InputList,
        options: &'a ReadOptions,
        at: u32,
        begun: Box<dyn Read + Send>,
    ) -> Result<Option<Self>, SourceError> {
        let Some(file) = list.files.get(at as usize) else {
            return Ok(None);
        };
        let mut reader = Self::closed(file, options, Place::of_file(at));
        reader.begun = Some(begun);
        reader.open_kind(u64::MAX)?;
        Ok(Some(reader))
    }

    /// Opens the row groups of file number `at` of `list` that hold these rows, at the first row.
    pub(super) fn open_rows(
        list: &'a InputList,
        options: &'a ReadOptions,
        at: u32,
        (unit, to): (u64, u64),
    ) -> Result<Option<Self>, SourceError> {
        let Some(file) = list.files.get(at as usize) else {
            return Ok(None);
        };
        let place = Place {
            unit,
            ..Place::of_file(at)
        };
        let mut reader = Self::closed(file, options, place);
        reader.open_kind(to)?;
        Ok(Some(reader))
    }

    /// Returns a reader that has no bytes yet.
    pub(super) fn closed(file: &'a InputFile, options: &'a ReadOptions, at: Place) -> Self {
        let ids = matches!(options.content, ReadContent::Ids { .. });
        Self {
            file,
            options,
            unit_kind: options.format.units(&file.pin.name, ids),
            at,
            codec: Codec::Plain,
            head: Vec::new(),
            packed: None,
            kind: Kind::Done,
            begun: None,
        }
    }

    /// Opens the file at `self.at`; row groups from row `to` on are left out.
    fn open_kind(&mut self, to: u64) -> Result<(), SourceError> {
        let (file, options, from) = (self.file, self.options, self.at);
        match options.format.for_file(&file.pin.name) {
            Format::Parquet => self.open_parquet(to)?,
            Format::Npy if let ReadContent::Ids { end_token } = options.content => {
                self.open_npy(end_token)?;
            }
            Format::Megatron => return Err(self.unpaired("one file alone")),
            Format::Webdataset => self.open_shard()?,
            Format::Text
                if options.format == Format::Auto
                    && let Some(why) = Format::refusal(&file.pin.name) =>
            {
                return Err(SourceError::NoReader {
                    first: file.pin.name.clone(),
                    number: 1,
                    why,
                });
            }
            Format::Text | Format::Npy if from.unit > 0 || !options.share.owns(from.file, 0) => {}
            Format::Text | Format::Npy => self.kind = Kind::Text(self.open_stream()?),
            _ => {
                let stream = self.open_stream()?;
                self.kind = Kind::Lines(Lines::new(stream, BUFFER_BYTES, options.shares_memory()));
            }
        }
        Ok(())
    }

    /// Opens the uncompressed file number `at` at the first line that begins at `from` or behind; `stream` begins at the
    /// byte before, if there is one.
    pub(super) fn open_lines(
        list: &'a InputList,
        options: &'a ReadOptions,
        (at, from): (u32, u64),
        stream: Box<dyn Read + Send>,
    ) -> Result<Option<Self>, SourceError> {
        let Some(file) = list.files.get(at as usize) else {
            return Ok(None);
        };
        let mut reader = Self::closed(file, options, Place::of_file(at));
        let mut stream = Lines::new(stream, LINES_BUFFER_BYTES, options.shares_memory());
        reader.at.offset = from.saturating_sub(1);
        // A line begins behind a line break, so the byte before decides about the first one.
        if from > 0 {
            let skipped = stream.next(0, false);
            match skipped.map_err(|why| reader.unreadable(why))? {
                Line::End => return Ok(Some(reader)),
                Line::Whole { bytes, .. } | Line::Skipped { bytes, .. } => {
                    reader.at.offset += bytes;
                }
            }
        }
        reader.kind = Kind::Lines(stream);
        Ok(Some(reader))
    }

    /// Opens the decompressed bytes from `self.at` on.
    pub(super) fn open_stream(&mut self) -> Result<Box<dyn Read + Send>, SourceError> {
        let offset = self.at.offset;
        let stream = self.open_stream_at(offset);
        stream.map_err(|why| self.unreadable(why))
    }

    pub(super) fn open_stream_at(&mut self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        if offset > 0 && self.begun.is_none() {
            self.codec = Codec::from_head(&remote::head(self.file, Codec::HEAD_BYTES)?);
            if self.codec == Codec::Plain {
                return remote::open(self.file, offset);
            }
        }
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => remote::open(self.file, 0)?,
        };
        let mut head = Vec::new();
        let mut first = begun.by_ref().take(Codec::HEAD_BYTES);
        first.read_to_end(&mut head)?;
        self.codec = Codec::from_head(&head);
        self.head.clone_from(&head);
        let memory = self.memory();
        let whole = io::Cursor::new(head).chain(begun);
        let mut stream: Box<dyn Read + Send> = if self.codec == Codec::Plain {
            Box::new(whole)
        } else {
            let (file, count) = Counted::new(whole);
            self.packed = Some(count);
            self.codec.decode(Box::new(file), memory)?
        };
        // An earlier reader returned this place, so these bytes were readable then.
        io::copy(&mut stream.by_ref().take(offset), &mut io::sink())?;
        Ok(stream)
    }

    /// Fails if the file changed its size: it then looks damaged, but is not a bad document.
    pub(super) fn check_size(&self) -> Result<(), SourceError> {
        remote::check_size(self.file).map_err(|why| self.unreadable(why))
    }

    pub(super) fn unreadable(&self, why: io::Error) -> SourceError {
        SourceError::Unreadable {
            file: self.file.pin.name.clone(),
            why,
        }
    }

    /// Returns this producer's next unit; `None` at the end of the file.
    pub fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        match std::mem::replace(&mut self.kind, Kind::Done) {
            Kind::Done => Ok(None),
            Kind::Failed(reason) => Ok(self.bad(reason)),
            Kind::Text(stream) => self.text(stream),
            Kind::Lines(stream) => self.line(stream),
            Kind::Parquet(rows) => self.row(rows),
            Kind::Ids(rows) => self.ids(rows),
            Kind::Shard(samples) => self.sample(samples),
        }
    }

    /// Returns a bad unit at the current place, if it belongs to this producer.
    pub(super) fn bad(&self, reason: Reason) -> Option<Unit> {
        let ours = self.options.share.owns(self.at.file, self.at.unit);
        ours.then_some(Unit {
            place: self.at,
            kind: self.unit_kind,
            raw: Err(reason),
            cells: Vec::new(),
        })
    }

    /// Handles a failed read: damaged compressed data ends the file with one bad document, every other failure is
    /// an error.
    pub(super) fn failed(&self, why: io::Error) -> Result<Option<Unit>, SourceError> {
        self.damage(why).map(|reason| self.bad(reason))
    }

    pub(super) fn damage(&self, why: io::Error) -> Result<Reason, SourceError> {
        let content = matches!(
            why.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        ) || self.codec == Codec::Xz
            && matches!(
                why.kind(),
                io::ErrorKind::OutOfMemory | io::ErrorKind::Unsupported
            );
        // The zstd decoder reports damage as `Other`, which failures of the store and shrunken files are too.
        let zstd = self.codec == Codec::Zstd
            && why.get_ref().is_none_or(|e| {
                !e.is::<batchweave_store::StoreError>() && !e.is::<remote::Changed>()
            });
        if self.codec == Codec::Plain || !(content || zstd) {
            return Err(self.unreadable(why));
        }
        Ok(self.codec.reason(&why, &self.head, self.memory()))
    }

    fn memory(&self) -> DecoderMemory {
        DecoderMemory {
            most: self.options.decompress_memory,
            file: self.file.pin.size,
        }
    }

    fn text(&mut self, mut stream: Box<dyn Read + Send>) -> Result<Option<Unit>, SourceError> {
        let limit = self.options.max_document_bytes;
        match whole(&mut stream, limit, self.file.pin.size) {
            Ok(text) => {
                let raw = match text {
                    None => Err(Reason::TooLong { limit }),
                    Some(text) if self.is_text_by_name() => self.as_named(text)?,
                    Some(text) => Ok(text),
                };
                Ok(Some(Unit {
                    place: self.at,
                    kind: self.unit_kind,
                    raw,
                    cells: Vec::new(),
                }))
            }
            Err(why) => self.failed(why),
        }
    }

    fn line(&mut self, mut stream: Lines) -> Result<Option<Unit>, SourceError> {
        let limit = self.options.max_document_bytes;
        loop {
            let place = self.at;
            let ours = self.options.share.owns(place.file, place.unit);
            let (bytes, raw) = match stream.next(limit, ours) {
                Err(why) => return self.failed(why),
                Ok(Line::End) => return Ok(None),
                Ok(Line::Whole { text, bytes }) => (bytes, Some(Ok(text))),
                Ok(Line::Skipped { bytes, too_long }) if ours && too_long => {
                    (bytes, Some(Err(Reason::TooLong { limit })))
                }
                Ok(Line::Skipped { bytes, .. }) => (bytes, None),
            };
            self.at.unit += 1;
            self.at.offset += bytes;
            if let Some(raw) = raw {
                self.kind = Kind::Lines(stream);
                return Ok(Some(Unit {
                    place,
                    kind: self.unit_kind,
                    raw,
                    cells: Vec::new(),
                }));
            }
        }
    }
}
