//! The bytes of a Parquet file, local or in a store, for the Parquet library. It reads a column page by page, and each
//! page in two steps, so the columns of an object are requested in larger pieces, ahead of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::footers;
use super::remote::{self, RemoteObject, RemoteRead, Requested};
use super::{InputFile, Location, local_file};

/// Bytes of a column per request.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces of a column that are requested before they are needed.
const PIECES_AHEAD: usize = 4;
/// Bytes in which a page's header is looked for first.
const HEADER_BYTES: u64 = 64 << 10;

/// A file or object that refuses reads beyond its end. A damaged footer may name any offset, and the answer of the
/// system or the store to such a read would count as a failure to access the file.
pub(super) struct ParquetBytes {
    size: u64,
    from: From,
}

enum From {
    File(File),
    Object(ObjectBytes),
}

/// An object: its end, which has the footer, and the columns that are read.
struct ObjectBytes {
    object: RemoteObject,
    /// The object's last bytes.
    tail: Bytes,
    columns: Mutex<Vec<ColumnBytes>>,
}

impl ParquetBytes {
    pub(super) fn open(file: &InputFile) -> io::Result<Self> {
        let from = match &file.location {
            Location::Local(path) => {
                remote::check_size(file)?;
                From::File(local_file::open(path)?)
            }
            Location::Remote { .. } => {
                let object = RemoteObject::from_file(file)?;
                From::Object(ObjectBytes {
                    tail: footers::tail(&object, &file.pin)?,
                    object,
                    columns: Mutex::default(),
                })
            }
        };
        let size = file.pin.size;
        Ok(Self { size, from })
    }

    /// Requests the beginning of columns at these places, and forgets all others. Those beyond the end are left out:
    /// reading them fails.
    pub(super) fn read_ahead(&self, columns: Vec<Range<u64>>) {
        let From::Object(own) = &self.from else {
            return;
        };
        let mut open = own.columns();
        open.retain(|column| columns.contains(&column.place));
        for place in columns {
            let known = open.iter().any(|column| column.place == place);
            if !known && place.start < place.end && place.end <= self.size {
                let mut column = ColumnBytes::new(place);
                column.request(&own.object);
                open.push(column);
            }
        }
    }

    fn check(&self, start: u64, length: u64) -> parquet::errors::Result<()> {
        match start.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(ParquetError::EOF(format!(
                "it refers to {length} bytes from byte {start} on, and the file has {}",
                self.size
            ))),
        }
    }
}

impl Length for ParquetBytes {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for ParquetBytes {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        self.check(start, 0)?;
        Ok(match &self.from {
            From::File(file) => Box::new(file.get_read(start)?),
            From::Object(object) => object.read(start)?,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.check(start, length as u64)?;
        match &self.from {
            From::File(file) => file.get_bytes(start, length),
            From::Object(object) => Ok(object.bytes(start, length as u64)?),
        }
    }
}

impl ObjectBytes {
    fn columns(&self) -> MutexGuard<'_, Vec<ColumnBytes>> {
        self.columns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes from `start` on that are at hand or requested, at most `length`.
    fn known(&self, start: u64, length: u64) -> io::Result<Option<Bytes>> {
        let tail_at = self.object.size() - self.tail.len() as u64;
        if start >= tail_at {
            let from = (start - tail_at) as usize;
            let to = self.tail.len().min(from.saturating_add(length as usize));
            return Ok(Some(self.tail.slice(from..to)));
        }
        let mut columns = self.columns();
        let column = columns.iter_mut().find(|column| column.holds(start));
        column
            .map(|column| column.take(&self.object, start, length))
            .transpose()
    }

    fn bytes(&self, start: u64, length: u64) -> io::Result<Bytes> {
        let known = self.known(start, length)?;
        match known.filter(|bytes| bytes.len() as u64 == length) {
            Some(bytes) => Ok(bytes),
            None => self.object.range(start..start + length),
        }
    }

    fn read(&self, start: u64) -> io::Result<Box<dyn Read + Send>> {
        let known = self.known(start, HEADER_BYTES)?.unwrap_or_default();
        // What is read is a header, so little follows.
        let behind = start + known.len() as u64;
        let rest = RemoteRead::new(self.object.clone(), behind, Some(behind));
        Ok(Box::new(known.reader().chain(rest)))
    }
}

/// The bytes of a column of a row group, which are read from the beginning to the end.
struct ColumnBytes {
    place: Range<u64>,
    /// The bytes before `at` that may still be needed.
    kept: Bytes,
    at: u64,
    /// Pieces from `at` on.
    ahead: VecDeque<Requested>,
}

impl ColumnBytes {
    fn new(place: Range<u64>) -> Self {
        Self {
            kept: Bytes::new(),
            at: place.start,
            ahead: VecDeque::new(),
            place,
        }
    }

    /// Returns whether the byte at `start` is there or still to come.
    fn holds(&self, start: u64) -> bool {
        let from = self.at - self.kept.len() as u64;
        from <= start && start < self.place.end
    }

    /// Requests pieces, as many as may be ahead.
    fn request(&mut self, object: &RemoteObject) {
        while self.ahead.len() < PIECES_AHEAD {
            let from = self.ahead.back().map_or(self.at, |last| last.range.end);
            if from >= self.place.end {
                return;
            }
            let to = self.place.end.min(from + PIECE_BYTES);
            self.ahead.push_back(object.request(from..to));
        }
    }

    /// Returns the bytes from `start` on, `length` of them or those up to the end of the column. Bytes before are
    /// forgotten.
    fn take(&mut self, object: &RemoteObject, start: u64, length: u64) -> io::Result<Bytes> {
        let end = self.place.end.min(start.saturating_add(length));
        let mut parts = vec![self.forget_before(start)];
        while self.at < end {
            let Some(piece) = self.ahead.pop_front() else {
                self.request(object);
                continue;
            };
            let to = piece.range.end;
            let bytes = object.take(piece)?;
            let skip = start.saturating_sub(self.at).min(bytes.len() as u64);
            parts.push(bytes.slice(skip as usize..));
            self.at = to;
            self.request(object);
        }
        parts.retain(|part| !part.is_empty());
        self.kept = remote::joined(parts);
        let wanted = self.kept.len().min((end - start) as usize);
        Ok(self.kept.slice(..wanted))
    }

    /// Returns the kept bytes from `start` on.
    fn forget_before(&mut self, start: u64) -> Bytes {
        let from = self.at - self.kept.len() as u64;
        let skip = start.saturating_sub(from).min(self.kept.len() as u64);
        std::mem::take(&mut self.kept).slice(skip as usize..)
    }
}
