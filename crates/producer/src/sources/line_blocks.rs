//! Lines that share the blocks of memory that they are read into, so that no byte of most lines is copied.

use std::io::{self, Read};

use bytes::Bytes;

use super::line::{Line, line};
use super::whole::{FREE, buffer};

/// Lines per block that a block of long lines has room for, up to a size: what is left behind the last of them is copied.
const LONG_LINES: usize = 4;
const LONG_BLOCK_BYTES: usize = 4 << 20;

/// The lines of a stream, in blocks.
pub(super) struct LineBlocks {
    from: Box<dyn Read + Send>,
    /// Least size of a block in bytes.
    block: usize,
    /// The bytes of the last block that are not given out.
    rest: Bytes,
    /// Length of the lines that crossed blocks lately.
    expected: usize,
}

/// A block that is being filled.
struct Block {
    /// Filled up to `filled`; the rest holds anything.
    memory: Vec<u8>,
    filled: usize,
}

impl LineBlocks {
    /// Returns the lines of `from`, which is read into blocks of at least this size in bytes.
    pub(super) fn new(from: Box<dyn Read + Send>, block: usize) -> Self {
        Self {
            from,
            block,
            rest: Bytes::new(),
            expected: 0,
        }
    }

    /// Reads the next line of at most `limit` bytes; keeps it only when `wanted`.
    pub(super) fn next(&mut self, limit: u64, wanted: bool) -> io::Result<Line> {
        if let Some(end) = memchr::memchr(b'\n', &self.rest) {
            return Ok(self.up_to(end, 0, limit, wanted));
        }
        // The line goes on in what is read next.
        let begun = std::mem::take(&mut self.rest);
        let mut block = Block::beginning(&begun, self.room(begun.len()));
        drop(begun);
        let mut dropped = 0;
        loop {
            if !wanted || dropped + block.filled as u64 > limit {
                dropped += block.filled as u64;
                block.filled = 0;
            }
            let before = block.filled;
            let read = block.read(&mut self.from)?;
            if let Some(end) = memchr::memchr(b'\n', block.read_from(before)) {
                self.rest = block.share();
                self.expected = (before + end).max(self.expected - self.expected / 4);
                return Ok(self.up_to(before + end, dropped, limit, wanted));
            }
            if read == 0 {
                let is_end = block.filled == 0 && dropped == 0;
                let last = || line(block.share(), (dropped, false), limit, wanted);
                return Ok(if is_end { Line::End } else { last() });
            }
        }
    }

    /// Returns the line up to the line break at `end`.
    fn up_to(&mut self, end: usize, dropped: u64, limit: u64, wanted: bool) -> Line {
        let text = self.rest.split_to(end + 1).slice(..end);
        line(text, (dropped, true), limit, wanted)
    }

    /// Returns the size of the next block in bytes, which begins with `begun` bytes of a line.
    fn room(&self, begun: usize) -> usize {
        let long = (LONG_LINES * self.expected).min(LONG_BLOCK_BYTES);
        let one = self.expected + self.expected / 4;
        self.block.max(long).max(one).max(2 * begun)
    }
}

impl Block {
    /// Returns a block with room for this number of bytes, which begins with `begun`.
    fn beginning(begun: &[u8], room: usize) -> Self {
        let mut memory = buffer(&FREE, room);
        memory[..begun.len()].copy_from_slice(begun);
        Self {
            memory,
            filled: begun.len(),
        }
    }

    /// Reads more, once: a stream that gives few bytes at a time may wait long for the next ones. Returns 0 at the end.
    fn read(&mut self, from: &mut impl Read) -> io::Result<usize> {
        if self.filled == self.memory.len() {
            let larger = Self::beginning(&self.memory, 2 * self.memory.len());
            drop(std::mem::replace(self, larger).share());
        }
        loop {
            match from.read(&mut self.memory[self.filled..]) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                read => return read.inspect(|more| self.filled += more),
            }
        }
    }

    /// Returns what is read from this offset on.
    fn read_from(&self, from: usize) -> &[u8] {
        &self.memory[from..self.filled]
    }

    /// Returns the bytes that are filled; the memory is used again when the last line in it is dropped.
    fn share(self) -> Bytes {
        let few = self.filled < self.memory.len() / 2;
        let all = FREE.share(self.memory);
        // The lines of a block that is nearly empty must not hold all of it.
        if few {
            Bytes::copy_from_slice(&all[..self.filled])
        } else {
            all.slice(..self.filled)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_nearly_empty_is_not_held() {
        let own_memory = |filled| {
            let memory = vec![7; 1000];
            let bytes = Block { memory, filled }.share();
            assert_eq!(bytes, vec![7; filled]);
            let at = bytes.as_ptr();
            // Shared memory can't be taken, only copied.
            let taken = Vec::from(bytes);
            taken.as_ptr() == at
        };
        assert!(own_memory(499));
        assert!(!own_memory(500));
    }
}
