//! The records of a table of text. A record is as long as its quotes say, so memory is bounded here: of one beyond the
//! limit nothing is kept.

use std::io::{self, BufRead, BufReader};

use csv_core::ReadRecordResult;

use crate::sources::file_stream::Stream;

const BUFFER_BYTES: usize = 64 << 10;
/// The first room for the bytes and the fields of a record.
const RECORD_BYTES: usize = 4 << 10;
const RECORD_FIELDS: usize = 64;
/// Most fields of a record.
pub(super) const FIELDS_MAX: usize = 10_000;

/// A record as it was read.
pub(super) enum Record<'a> {
    Whole(Fields<'a>),
    /// It is longer than the limit, or has more than [`FIELDS_MAX`] fields.
    TooLong,
    /// The file ends within a quote, which may have begun long before.
    OpenQuote,
}

/// The fields of a record, without quotes.
pub(super) struct Fields<'a> {
    data: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Fields<'a> {
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let (data, ends) = (self.data, self.ends);
        let begins = std::iter::once(0).chain(ends.iter().copied());
        begins
            .zip(ends)
            .map(|(begin, end)| data.get(begin..*end).unwrap_or_default())
    }
}

/// A cursor over the records of a stream. Blank lines are none.
pub(super) struct Records {
    from: BufReader<Stream>,
    parser: csv_core::Reader,
    data: Vec<u8>,
    ends: Vec<usize>,
    /// Offset of the byte that is read next.
    offset: u64,
    ended: bool,
}

impl Records {
    /// Returns the records of `from`, which begins at `offset`.
    pub(super) fn new(from: Stream, offset: u64, delimiter: u8) -> Self {
        Self {
            from: BufReader::with_capacity(BUFFER_BYTES, from),
            parser: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            data: vec![0; RECORD_BYTES],
            ends: vec![0; RECORD_FIELDS],
            offset,
            ended: false,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next record of at most `limit` bytes; `None` at the end.
    pub(super) fn next(&mut self, limit: u64) -> io::Result<Option<Record<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let bytes_max = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut bytes, mut fields, mut long) = (0, 0, false);
        loop {
            let input = match self.from.fill_buf() {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let last = input.is_empty();
            // A line break closes every record but one within a quote.
            let given = match (last, self.ended) {
                (false, _) => input,
                (true, false) => b"\n",
                (true, true) => b"",
            };
            let (data, ends) = (&mut self.data[bytes..], &mut self.ends[fields..]);
            let (result, read, written, ended) = self.parser.read_record(given, data, ends);
            let cut = last && self.ended;
            if last {
                self.ended = true;
            } else {
                self.from.consume(read);
                self.offset += read as u64;
            }
            bytes += written;
            fields += ended;
            match result {
                ReadRecordResult::OutputFull if !grow(&mut self.data, bytes_max) => {
                    (bytes, long) = (0, true);
                }
                ReadRecordResult::OutputEndsFull if !grow(&mut self.ends, FIELDS_MAX) => {
                    (fields, long) = (0, true);
                }
                ReadRecordResult::InputEmpty
                | ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull => {}
                ReadRecordResult::End => return Ok(None),
                ReadRecordResult::Record if cut => return Ok(Some(Record::OpenQuote)),
                ReadRecordResult::Record if long || bytes > bytes_max => {
                    return Ok(Some(Record::TooLong));
                }
                ReadRecordResult::Record => {
                    return Ok(Some(Record::Whole(Fields {
                        data: &self.data[..bytes],
                        ends: &self.ends[..fields],
                    })));
                }
            }
        }
    }
}

/// Doubles the room, up to `most`. Returns whether it grew.
fn grow<T: Clone + Default>(room: &mut Vec<T>, most: usize) -> bool {
    let larger = room.len().saturating_mul(2).min(most);
    let grows = larger > room.len();
    if grows {
        room.resize(larger, T::default());
    }
    grows
}
