//! Lines of a byte stream. Memory is bounded: one longer than the limit is skipped without being kept.

use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;

/// The result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The stream has ended.
    End,
    /// A line, without its line break; `bytes` were consumed.
    Whole { text: Bytes, bytes: u64 },
    /// A line that was not wanted, or is longer than the limit.
    Skipped { bytes: u64, too_long: bool },
}

/// The lines of a stream.
pub(super) struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    /// With `Some`, lines share the memory of what was read at once, which is here as far as it is not given out.
    shared: Option<Bytes>,
}

impl Lines {
    /// Returns the lines of `from`, of which `buffer` bytes are read at a time. A shared line holds the memory of all
    /// these bytes, so lines are shared only where most of them are wanted.
    pub(super) fn new(from: Box<dyn Read + Send>, buffer: usize, shared: bool) -> Self {
        Self {
            from: BufReader::with_capacity(buffer, from),
            shared: shared.then(Bytes::new),
        }
    }

    /// Reads the next line of at most `limit` bytes; keeps it only when `wanted`.
    pub(super) fn next(&mut self, limit: u64, wanted: bool) -> io::Result<Line> {
        let Some(rest) = &mut self.shared else {
            return next_line(&mut self.from, limit, wanted);
        };
        if let Some(end) = memchr::memchr(b'\n', rest) {
            let text = rest.split_to(end + 1).slice(..end);
            return Ok(line(text, (0, true), limit, wanted));
        }
        // The line goes on in what is read next.
        let (mut begun, mut dropped) = (rest.to_vec(), 0_u64);
        rest.clear();
        loop {
            if !wanted || dropped + begun.len() as u64 > limit {
                dropped += begun.len() as u64;
                begun.clear();
            }
            let buffer = self.from.fill_buf()?;
            let (used, end) = (buffer.len(), memchr::memchr(b'\n', buffer));
            let end = end.map(|end| begun.len() + end);
            begun.extend_from_slice(buffer);
            self.from.consume(used);
            if let Some(end) = end {
                *rest = begun.into();
                let text = rest.split_to(end + 1).slice(..end);
                return Ok(line(text, (dropped, true), limit, wanted));
            }
            if used == 0 {
                let is_end = begun.is_empty() && dropped == 0;
                let last = || line(begun.into(), (dropped, false), limit, wanted);
                return Ok(if is_end { Line::End } else { last() });
            }
        }
    }
}

/// Returns the line that ends in `text`, behind `dropped` bytes, perhaps with a line break.
fn line(mut text: Bytes, (dropped, broken): (u64, bool), limit: u64, wanted: bool) -> Line {
    let length = dropped + text.len() as u64;
    let bytes = length + u64::from(broken);
    let too_long = length > limit;
    if !wanted || too_long {
        return Line::Skipped { bytes, too_long };
    }
    if text.last() == Some(&b'\r') {
        text.truncate(text.len() - 1);
    }
    Line::Whole { text, bytes }
}

/// Reads the next line of at most `limit` bytes; keeps it only when `wanted`.
fn next_line(from: &mut impl BufRead, limit: u64, wanted: bool) -> io::Result<Line> {
    let mut text = Vec::new();
    let (mut bytes, mut length) = (0u64, 0u64);
    loop {
        let buffer = from.fill_buf()?;
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
}
