//! Frames between this program and its processes: a length of 8 bytes, little-endian, and then the bytes.

use std::io::{self, Read, Write};

/// Most bytes that are reserved before they come.
const RESERVED_MAX: u64 = 16 << 20;

/// Writes a frame and flushes it.
pub(super) fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a frame; `None` at the end. A longer one than `most` bytes is an error.
pub(super) fn read_frame(from: &mut impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    match from.read_exact(&mut length) {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u64::from_le_bytes(length);
    if length > most {
        return Err(io::Error::other(format!(
            "a frame of {length} bytes, where at most {most} are expected"
        )));
    }
    // A length that is not true costs no more memory than this.
    let mut bytes = Vec::with_capacity(length.min(RESERVED_MAX) as usize);
    let read = from.take(length).read_to_end(&mut bytes)?;
    if (read as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(bytes))
}
