//! Whole files, in memory that is used again.

use std::io::{self, Read};
use std::sync::LazyLock;

use bytes::Bytes;

use crate::buffers::Buffers;

/// Room beyond the expected size of a file, in which its end is found.
const END_ROOM: u64 = 64;
/// Size from which new memory costs more than the pool does.
const LARGE_BYTES: u64 = 128 << 10;
/// Free memory that this process keeps for files.
const KEPT_BYTES: u64 = 64 << 20;

/// The free memory of whole files and of blocks of lines.
pub(super) static FREE: LazyLock<Buffers> = LazyLock::new(|| Buffers::new(KEPT_BYTES));

/// Reads all of `from`, of which `expected` bytes are likely; returns `None` when it is longer than `limit`.
pub(super) fn whole(from: &mut impl Read, limit: u64, expected: u64) -> io::Result<Option<Bytes>> {
    let room = expected.min(limit).saturating_add(END_ROOM);
    let room = usize::try_from(room).unwrap_or(0);
    let mut begun = if expected < LARGE_BYTES {
        Vec::with_capacity(room)
    } else {
        buffer(&FREE, room)
    };
    let read = fill(from, &mut begun)?;
    if !begun.is_empty() && read < begun.len() {
        let whole = FREE.share(begun).slice(..read);
        return Ok((read as u64 <= limit).then_some(whole));
    }
    // A small file, or one that is longer than expected, as compressed ones are.
    let left = limit.saturating_add(1).saturating_sub(read as u64);
    from.take(left).read_to_end(&mut begun)?;
    Ok((begun.len() as u64 <= limit).then(|| begun.into()))
}

/// Returns a buffer of `room` bytes and at most a quarter more, which holds earlier bytes.
pub(super) fn buffer(free: &Buffers, room: usize) -> Vec<u8> {
    let most = room.saturating_add(room / 4);
    // Sizes of few digits fit more files.
    let step = (room / 4).next_power_of_two() / 2;
    let used = free.take(&(room..=most));
    used.unwrap_or_else(|| vec![0; room.next_multiple_of(step.max(1))])
}

/// Reads until `buffer` is full or `from` ends. Returns the number of bytes.
pub(super) fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: usize, limit: u64, expected: u64) -> Option<Bytes> {
        let content: Vec<u8> = (0..length).map(|n| (n * 7 + length) as u8).collect();
        let read = whole(&mut &content[..], limit, expected).unwrap();
        assert!(read.iter().all(|read| *read == content));
        read
    }

    #[test]
    fn a_file_is_read_whole_with_any_expected_size() {
        const LARGE: usize = 300_000;
        for length in [0, 1, 5, LARGE - 1, LARGE, LARGE + 64, LARGE + 65, 3 * LARGE] {
            for expected in [0, 5, LARGE as u64, u64::MAX] {
                assert!(
                    read(length, 1 << 20, expected).is_some(),
                    "{length} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_file_beyond_the_limit_is_not_returned() {
        for limit in [5, 200_000] {
            for expected in [0, limit, u64::MAX] {
                assert!(read(limit as usize, limit, expected).is_some());
                assert!(read(limit as usize + 1, limit, expected).is_none());
                assert!(read(4 * limit as usize, limit, expected).is_none());
            }
        }
    }

    #[test]
    fn memory_is_used_again_and_little_more_than_needed() {
        let free = Buffers::new(KEPT_BYTES);
        let first = buffer(&free, 1 << 20);
        assert!(first.len() <= (1 << 20) + (1 << 18), "{}", first.len());
        drop(free.share(vec![7; first.len()]));
        let smaller = buffer(&free, 200_000);
        assert_eq!(smaller[0], 0);
        let again = buffer(&free, 1_000_000);
        assert_eq!((again.len(), again[0]), (first.len(), 7));
    }
}
