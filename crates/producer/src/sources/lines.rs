//! Lines of a byte stream. Memory is bounded: one longer than the limit is skipped without being kept.

use std::io::{self, BufRead, BufReader, Read};

use super::line::{Line, line};
use super::line_blocks::LineBlocks;

/// The lines of a stream.
pub(super) enum Lines {
    /// Each line has memory of its own.
    Copied(BufReader<Box<dyn Read + Send>>),
    Shared(LineBlocks),
}

impl Lines {
    /// Returns the lines of `from`, of which `buffer` bytes are read at a time. A shared line holds the memory of all
    /// these bytes, so lines are shared only where most of them are wanted.
    pub(super) fn new(from: Box<dyn Read + Send>, buffer: usize, shared: bool) -> Self {
        if shared {
            Self::Shared(LineBlocks::new(from, buffer))
        } else {
            Self::Copied(BufReader::with_capacity(buffer, from))
        }
    }

    /// Reads the next line of at most `limit` bytes; keeps it only when `wanted`.
    pub(super) fn next(&mut self, limit: u64, wanted: bool) -> io::Result<Line> {
        match self {
            Self::Copied(from) => next_line(from, limit, wanted),
            Self::Shared(blocks) => blocks.next(limit, wanted),
        }
    }
}

/// Reads the next line of at most `limit` bytes; keeps it only when `wanted`.
fn next_line(from: &mut impl BufRead, limit: u64, wanted: bool) -> io::Result<Line> {
    let mut text = Vec::new();
    let (mut bytes, mut length) = (0u64, 0u64);
    loop {
        let buffer = match from.fill_buf() {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if buffer.is_empty() {
            break;
        }
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        length += part.len() as u64;
        if wanted && length <= limit {
            text.extend_from_slice(part);
        } else {
            text = Vec::new();
        }
        let used = end.map_or(buffer.len(), |e| e + 1);
        bytes += used as u64;
        from.consume(used);
        if end.is_some() {
            break;
        }
    }
    if bytes == 0 {
        return Ok(Line::End);
    }
    let broken = bytes > length;
    let dropped = length - text.len() as u64;
    Ok(line(text.into(), (dropped, broken), limit, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], shared: bool) -> Lines {
        // A tiny buffer makes every line cross its edge.
        Lines::new(Box::new(io::Cursor::new(input.to_vec())), 3, shared)
    }

    /// Gives few bytes at a time, as a decoder may.
    struct Slow {
        from: io::Cursor<Vec<u8>>,
        at_a_time: usize,
        /// Every other read is interrupted.
        interrupts: bool,
    }

    impl Read for Slow {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let most = out.len().min(self.at_a_time);
            if self.interrupts {
                self.interrupts = false;
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.interrupts = true;
            self.from.read(&mut out[..most])
        }
    }

    fn all(input: &[u8], limit: u64) -> Vec<Line> {
        let read = |shared| {
            let mut from = lines(input, shared);
            let mut all = Vec::new();
            loop {
                match from.next(limit, true).unwrap() {
                    Line::End => return all,
                    line => all.push(line),
                }
            }
        };
        let copied = read(false);
        assert_eq!(read(true), copied);
        copied
    }

    fn line(text: &[u8], bytes: u64) -> Line {
        Line::Whole {
            text: text.to_vec().into(),
            bytes,
        }
    }

    #[test]
    fn lines_end_in_lf_crlf_or_the_end() {
        assert_eq!(
            all(b"a\nbcdefg\r\n\nlast", 100),
            [
                line(b"a", 2),
                line(b"bcdefg", 8),
                line(b"", 1),
                line(b"last", 4)
            ]
        );
        assert_eq!(all(b"", 9), []);
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_as_a_whole() {
        assert_eq!(
            all(b"12345\n123456\nx\n", 5),
            [
                line(b"12345", 6),
                Line::Skipped {
                    bytes: 7,
                    too_long: true
                },
                line(b"x", 2)
            ]
        );
    }

    #[test]
    fn an_unwanted_line_is_not_kept() {
        for shared in [false, true] {
            let mut from = lines(b"abc\nd", shared);
            let passed = Line::Skipped {
                bytes: 4,
                too_long: false,
            };
            assert_eq!(from.next(100, false).unwrap(), passed);
            assert_eq!(from.next(100, true).unwrap(), line(b"d", 1));
        }
    }

    /// Returns the lines by their definition.
    fn defined(input: &[u8], limit: u64, wanted: impl Fn(usize) -> bool) -> Vec<Line> {
        let pieces = input.split_inclusive(|byte| *byte == b'\n').enumerate();
        let lines = pieces.map(|(n, piece)| {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            let too_long = text.len() as u64 > limit;
            let bytes = piece.len() as u64;
            if too_long || !wanted(n) {
                return Line::Skipped { bytes, too_long };
            }
            line(text.strip_suffix(b"\r").unwrap_or(text), bytes)
        });
        lines.collect()
    }

    proptest::proptest! {
        #[test]
        fn all_streams_and_blocks_give_the_same_lines(
            input in proptest::collection::vec("[a\n\r]|[ab]{0,40}\r?\n", 0..20),
            limit in 0..50u64,
            block in 1..20usize,
            at_a_time in 1..30usize,
            every in 1..4usize,
            shared in proptest::bool::ANY,
        ) {
            let input = input.concat().into_bytes();
            let stream = Slow {
                from: io::Cursor::new(input.clone()),
                at_a_time,
                interrupts: true,
            };
            let mut from = Lines::new(Box::new(stream), block, shared);
            let mut read = Vec::new();
            loop {
                match from.next(limit, read.len() % every == 0).unwrap() {
                    Line::End => break,
                    line => read.push(line),
                }
            }
            assert_eq!(read, defined(&input, limit, |n| n % every == 0));
        }
    }

    #[test]
    fn long_lines_are_read_into_blocks_of_their_size() {
        let long = |n: usize| vec![b'a' + (n % 26) as u8; 700_000 + 1000 * n];
        let input: Vec<u8> = (0..40)
            .flat_map(|n| [long(n), b"\n".to_vec()].concat())
            .collect();
        let mut from = Lines::new(Box::new(io::Cursor::new(input)), 1 << 16, true);
        for n in 0..40 {
            let read = from.next(u64::MAX, true).unwrap();
            assert!(read == line(&long(n), long(n).len() as u64 + 1), "{n}");
        }
        assert_eq!(from.next(u64::MAX, true).unwrap(), Line::End);
    }
}
