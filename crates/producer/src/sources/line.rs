//! One line of a byte stream.

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

/// Returns the line that ends in `text`, behind `dropped` bytes, perhaps with a line break.
pub(super) fn line(
    mut text: Bytes,
    (dropped, broken): (u64, bool),
    limit: u64,
    wanted: bool,
) -> Line {
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
