//! The last bytes of Parquet objects, which hold their footers. A footer is needed for the plan of blocks, and again
//! for each row group that is read, so recent ones are kept.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use batchweave_core::inputs::PinnedFile;
use bytes::Bytes;

use super::remote::RemoteObject;

/// The first request for the end of an object; many footers are smaller.
const FIRST_BYTES: u64 = 16 << 10;
/// The length of the footer, and the magic number.
const END_BYTES: usize = 8;
/// The longest footer that is read whole; a longer one is damage more likely, and is read as the library asks.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Footers that are kept, in bytes over all files.
const KEPT_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
struct Kept {
    /// By name and fingerprint of the file, with the time of the last use.
    tails: HashMap<(String, String), (u64, Bytes)>,
    bytes: usize,
    time: u64,
}

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

/// Returns the last bytes of an object, with the whole footer if it is one.
pub(super) fn tail(object: &RemoteObject, pin: &PinnedFile) -> io::Result<Bytes> {
    if let Some(tail) = with_kept(|kept| kept.get(pin)) {
        return Ok(tail);
    }
    let tail = read(object)?;
    with_kept(|kept| kept.put(pin, &tail));
    Ok(tail)
}

fn read(object: &RemoteObject) -> io::Result<Bytes> {
    let size = object.size();
    let begin = size.saturating_sub(FIRST_BYTES);
    if size == 0 {
        return Ok(Bytes::new());
    }
    let last = object.range(begin..size)?;
    let footer = last.len().checked_sub(END_BYTES).and_then(|at| {
        let length = u32::from_le_bytes(*last[at..].first_chunk::<4>()?);
        Some(u64::from(length) + END_BYTES as u64)
    });
    let wanted = footer.filter(|n| *n <= size.min(FOOTER_BYTES_MAX));
    let from = size - wanted.unwrap_or(0);
    if from >= begin {
        return Ok(last);
    }
    Ok([object.range(from..begin)?, last].concat().into())
}

fn with_kept<T>(work: impl FnOnce(&mut Kept) -> T) -> T {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    work(kept.get_or_insert_default())
}

impl Kept {
    fn get(&mut self, pin: &PinnedFile) -> Option<Bytes> {
        self.time += 1;
        let (used, tail) = self.tails.get_mut(&key(pin))?;
        *used = self.time;
        Some(tail.clone())
    }

    fn put(&mut self, pin: &PinnedFile, tail: &Bytes) {
        self.time += 1;
        let old = self.tails.insert(key(pin), (self.time, tail.clone()));
        self.bytes += tail.len();
        self.bytes -= old.map_or(0, |(_, tail)| tail.len());
        while self.bytes > KEPT_BYTES {
            let oldest = self.tails.iter().min_by_key(|(_, (used, _))| *used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            let gone = self.tails.remove(&key);
            self.bytes -= gone.map_or(0, |(_, tail)| tail.len());
        }
    }
}

fn key(pin: &PinnedFile) -> (String, String) {
    (pin.name.clone(), pin.fingerprint.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footers_used_last_are_kept_within_the_bound() {
        let pin = |n: u32| PinnedFile::new(n.to_string(), 1, b"", b"");
        let tail = Bytes::from(vec![0; KEPT_BYTES / 4]);
        let mut kept = Kept::default();
        for n in 0..4 {
            kept.put(&pin(n), &tail);
        }
        assert!(kept.get(&pin(0)).is_some());
        kept.put(&pin(4), &tail);
        let there: Vec<u32> = (0..5).filter(|n| kept.get(&pin(*n)).is_some()).collect();
        assert_eq!(there, [0, 2, 3, 4]);
        kept.put(&pin(4), &tail);
        assert_eq!(kept.bytes, KEPT_BYTES);
    }
}
