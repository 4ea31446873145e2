//! The first stage: reads the units of all input files in order, pass after pass, in chunks for the tokenizing
//! threads. Runs in a blocking thread.

use std::sync::Arc;

use batchweave_core::inputs::LinkId;
use batchweave_core::order::Position;
use tokio_util::sync::CancellationToken;

use crate::config::Selection;
use crate::packing::Point;
use crate::pipeline::new_files::{NewFilePoller, Waited};
use crate::progress::Reached;
use crate::sources::{FileReader, Inputs, Place, ReadOptions, SourceError, Unit};

/// Most bytes of input that are read ahead, as tokens or not yet.
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// A chunk is full at this many bytes, or `[source]`'s at [`chunk_bytes`], or at this many units.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
pub(super) const CHUNK_UNITS: usize = 256;
/// The largest size at which a chunk is full.
const LARGE_CHUNK_BYTES: usize = 1 << 20;
/// Chunks that are read ahead for each tokenizing thread, so that none waits for input.
const CHUNKS_PER_THREAD: usize = 8;

/// Returns the most bytes of input that are read ahead with this `upload.memory`.
pub(super) fn read_ahead(memory: u64) -> u64 {
    READ_AHEAD_BYTES.min(memory / 4)
}

/// Returns the size in bytes at which a chunk of `[source]` is full. Each chunk wakes four threads, which costs the time of
/// waking and the content of CPU caches, so few threads get large chunks.
pub fn chunk_bytes(threads: usize, memory: u64) -> usize {
    let ahead = usize::try_from(read_ahead(memory)).unwrap_or(usize::MAX);
    (ahead / CHUNKS_PER_THREAD / threads.max(1)).clamp(CHUNK_BYTES, LARGE_CHUNK_BYTES)
}

/// Neighbouring units of one source in one pass; of `[source]` they are from one file.
#[derive(Debug)]
pub struct Chunk {
    /// Index of the source.
    pub source: usize,
    pub pass: u64,
    /// The units in order; never empty when it is passed on.
    pub units: Vec<Unit>,
    /// The place of each unit in the order of its source; empty for `[source]`.
    pub positions: Vec<Position>,
    /// Bytes of the stored file that are read with this chunk.
    pub read: u64,
}

impl Chunk {
    /// Returns a chunk without units.
    pub(super) fn new(source: usize) -> Self {
        Self {
            source,
            pass: 0,
            units: Vec::new(),
            positions: Vec::new(),
            read: 0,
        }
    }

    /// Returns the place in the input that is reached with this chunk.
    pub(crate) fn reached(&self) -> Reached {
        Reached {
            pass: self.pass,
            file: self.units.first().map_or(0, |unit| unit.place.file),
            bytes: self.read,
        }
    }
}

/// An item that the reader gives to the next stage.
#[derive(Debug)]
pub enum ReadItem {
    Chunk(Chunk),
    /// The list of files has grown: later chunks count in the list of this name.
    Grown(LinkId),
    /// A pass has ended.
    PassEnd {
        /// The pass began at the first unit of the first file.
        whole: bool,
    },
}

/// Reads the input from a point on.
#[derive(Debug, Clone)]
pub struct InputReader {
    pub inputs: Arc<Inputs>,
    pub options: ReadOptions,
    pub from: Point,
    /// Number of passes; 0 reads for ever.
    pub passes: u64,
    /// Polls for more files, for input that grows.
    pub new_files: Option<Arc<NewFilePoller>>,
    /// The documents that are taken; all without it.
    pub selection: Option<Selection>,
    /// The size in bytes at which a chunk is full.
    pub chunk_bytes: usize,
}

/// The way in which reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// All passes are read.
    Complete,
    /// Reading was stopped, or the next stage is gone.
    Stopped,
}

impl InputReader {
    /// Returns the point after the last unit that will be read.
    pub fn end(&self) -> Point {
        Point::pass(self.passes.max(self.from.pass))
    }

    /// Reads to the end, and gives each item to `sink`, until `sink` returns false or `stop` is cancelled.
    pub fn run(
        &self,
        stop: &CancellationToken,
        mut sink: impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let mut pass = self.from.pass;
        let mut start = self.from.place();
        while self.passes == 0 || pass < self.passes {
            if self.pass(pass, start, stop, &mut sink)? == ReadEnd::Stopped {
                return Ok(ReadEnd::Stopped);
            }
            let whole = start == Place::default();
            if !sink(ReadItem::PassEnd { whole }) {
                return Ok(ReadEnd::Stopped);
            }
            pass += 1;
            start = Place::default();
        }
        Ok(ReadEnd::Complete)
    }

    /// Reads one pass from `from` on; of input that grows, the only one, with all files that join.
    fn pass(
        &self,
        pass: u64,
        mut from: Place,
        stop: &CancellationToken,
        sink: &mut impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let mut selection = self.selection.clone();
        loop {
            let list = self.inputs.now();
            while let Some(mut reader) = FileReader::open_in(&list, &self.options, from)? {
                let mut takes = |place| match &mut selection {
                    Some(selection) => selection.takes(&list, place),
                    None => true,
                };
                while let Some(chunk) = next_chunk(&mut reader, pass, self.chunk_bytes, &mut takes)?
                {
                    if stop.is_cancelled() || !sink(ReadItem::Chunk(chunk)) {
                        return Ok(ReadEnd::Stopped);
                    }
                }
                if stop.is_cancelled() {
                    return Ok(ReadEnd::Stopped);
                }
                from = Place {
                    file: from.file + 1,
                    ..Place::default()
                };
            }
            let Some(new_files) = &self.new_files else {
                return Ok(ReadEnd::Complete);
            };
            match new_files.wait(stop)? {
                Waited::Grown(list) if sink(ReadItem::Grown(list)) => {}
                Waited::Ended => return Ok(ReadEnd::Complete),
                _ => return Ok(ReadEnd::Stopped),
            }
        }
    }
}

fn next_chunk(
    reader: &mut FileReader<'_>,
    pass: u64,
    full: usize,
    takes: &mut impl FnMut(Place) -> bool,
) -> Result<Option<Chunk>, SourceError> {
    let mut units = Vec::new();
    let mut bytes = 0;
    while bytes < full && units.len() < CHUNK_UNITS {
        let Some(unit) = reader.next_unit()? else {
            break;
        };
        if !takes(unit.place) {
            continue;
        }
        bytes += unit.bytes();
        units.push(unit);
    }
    let read = reader.consumed();
    Ok((!units.is_empty()).then(|| Chunk {
        pass,
        units,
        read,
        ..Chunk::new(0)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_large_where_that_leaves_all_threads_enough() {
        assert_eq!(chunk_bytes(0, u64::MAX), LARGE_CHUNK_BYTES);
        assert_eq!(chunk_bytes(2, 256 << 20), LARGE_CHUNK_BYTES);
        assert_eq!(chunk_bytes(4, 256 << 20), 512 << 10);
        assert_eq!(chunk_bytes(64, 256 << 20), CHUNK_BYTES);
        assert_eq!(chunk_bytes(2, 4 << 20), CHUNK_BYTES);
    }
}
