//! The items of the first stage: chunks of units for the tokenizing threads, and their sizes.

use batchweave_core::inputs::LinkId;
use batchweave_core::order::Position;

use crate::config::ProducerConfig;
use crate::progress::Reached;
use crate::sources::Unit;

/// Most bytes of input that are read ahead, as tokens or not yet.
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// A chunk is full at this many bytes, or that of a single source at [`ChunkSize::of_single_source`].
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// The largest size at which a chunk is full.
const LARGE_CHUNK_BYTES: usize = 1 << 20;
/// A chunk is full at this many units.
const CHUNK_UNITS: usize = 256;
/// The same where a function makes the documents, which may take a second for each. 16 cost a function that does nothing a
/// fifth of its throughput.
const FUNCTION_CHUNK_UNITS: usize = 32;
/// Chunks that are read ahead for each tokenizing thread, so that none waits for input.
const CHUNKS_PER_THREAD: usize = 8;

/// Returns the most bytes of input that are read ahead with this `upload.memory`.
pub(super) fn read_ahead(memory: u64) -> u64 {
    READ_AHEAD_BYTES.min(memory / 4)
}

/// The size at which a chunk is full: at either number.
#[derive(Debug, Clone, Copy)]
pub struct ChunkSize {
    pub bytes: usize,
    pub units: usize,
}

impl ChunkSize {
    /// Returns the size for these settings.
    pub(crate) fn from_config(config: &ProducerConfig) -> Self {
        let usual = Self {
            bytes: CHUNK_BYTES,
            units: CHUNK_UNITS,
        };
        if !config.transform.function.is_empty() {
            // All documents of a chunk go to one process at once, and the other processes shall have work meanwhile.
            return Self {
                units: FUNCTION_CHUNK_UNITS,
                ..usual
            };
        }
        if config.sources.is_empty() {
            let memory = config.upload.memory.bytes();
            return Self::of_single_source(config.document_threads(), memory);
        }
        usual
    }

    /// Returns the size for a single source. Each chunk wakes four threads, which costs the time of waking and the content
    /// of CPU caches, so few threads get large chunks.
    pub fn of_single_source(threads: usize, memory: u64) -> Self {
        let ahead = usize::try_from(read_ahead(memory)).unwrap_or(usize::MAX);
        let each = ahead / CHUNKS_PER_THREAD / threads.max(1);
        Self {
            bytes: each.clamp(CHUNK_BYTES, LARGE_CHUNK_BYTES),
            units: CHUNK_UNITS,
        }
    }

    pub(super) fn is_reached(self, bytes: usize, units: usize) -> bool {
        bytes >= self.bytes || units >= self.units
    }
}

/// Neighbouring units of one source in one pass; in the order of the files they are from one file.
#[derive(Debug)]
pub struct Chunk {
    /// Index of the source.
    pub source: usize,
    pub pass: u64,
    /// The units in order; never empty when it is passed on.
    pub units: Vec<Unit>,
    /// The position behind each unit in the order of its source.
    pub after: Vec<Position>,
    /// Bytes of the stored file that are read with this chunk, in the order of the files.
    pub read: u64,
}

impl Chunk {
    /// Returns a chunk without units.
    pub(super) fn new(source: usize) -> Self {
        Self {
            source,
            pass: 0,
            units: Vec::new(),
            after: Vec::new(),
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
    /// A pass in the order of the files has ended.
    PassEnd {
        pass: u64,
    },
}

/// The way in which reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// All passes are read.
    Complete,
    /// Reading was stopped, or the next stage is gone.
    Stopped,
    /// The producer lacks the stage of the next batch.
    Held,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_large_where_that_leaves_all_threads_enough() {
        let chunk_bytes = |threads, memory| ChunkSize::of_single_source(threads, memory).bytes;
        assert_eq!(chunk_bytes(0, u64::MAX), LARGE_CHUNK_BYTES);
        assert_eq!(chunk_bytes(2, 256 << 20), LARGE_CHUNK_BYTES);
        assert_eq!(chunk_bytes(4, 256 << 20), 512 << 10);
        assert_eq!(chunk_bytes(64, 256 << 20), CHUNK_BYTES);
        assert_eq!(chunk_bytes(2, 4 << 20), CHUNK_BYTES);
    }
}
