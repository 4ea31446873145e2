//! Lines and whole files of a byte stream. Memory is bounded: a unit longer than the limit is skipped without
//! being kept.

use std::io::{self, BufRead, Read};

/// The result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The stream has ended.
    End,
    /// A line, without its line break; `bytes` were consumed.
    Whole { text: Vec<u8>, bytes: u64 },
    /// A line that was not wanted, or is longer than the limit.
    Skipped { bytes: u64, too_long: bool },
}

/// Reads the next line of at most `limit` bytes; keeps it only when `wanted`.
pub(super) fn next_line(from: &mut impl BufRead, limit: u64, wanted: bool) -> io::Result<Line> {
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
    let too_long = length > limit;
    if !wanted || too_long {
        return Ok(Line::Skipped { bytes, too_long });
    }
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    Ok(Line::Whole { text, bytes })
}

/// Reads all of `from`; returns `None` when it is longer than `limit`.
pub(super) fn whole(from: &mut impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    from.take(limit + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= limit).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], limit: u64) -> Vec<Line> {
        // A tiny buffer makes every line cross its edge.
        let mut from = io::BufReader::with_capacity(3, input);
        let mut lines = Vec::new();
        loop {
            match next_line(&mut from, limit, true).unwrap() {
                Line::End => return lines,
                line => lines.push(line),
            }
        }
    }

    fn line(text: &[u8], bytes: u64) -> Line {
        Line::Whole {
            text: text.to_vec(),
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
        assert_eq!(whole(&mut &b"12345"[..], 5).unwrap().unwrap(), b"12345");
        assert_eq!(whole(&mut &b"123456"[..], 5).unwrap(), None);
    }

    #[test]
    fn an_unwanted_line_is_not_kept() {
        let mut from = &b"abc\nd"[..];
        let passed = Line::Skipped {
            bytes: 4,
            too_long: false,
        };
        assert_eq!(next_line(&mut from, 100, false).unwrap(), passed);
        assert_eq!(next_line(&mut from, 100, true).unwrap(), line(b"d", 1));
    }
}
