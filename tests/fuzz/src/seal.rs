//! Right digests and checksums for bytes with wrong ones or none, so that a fuzzer reaches the code behind
//! them.

use std::borrow::Cow;

use batchweave_core::crc::crc32c;
use batchweave_core::json;
use batchweave_core::tgb::{ENTRY_BYTES, HEADER_BYTES, TRAILER_BYTES};

/// Offsets of the CRC32C of a trailer, an index entry and a frame's header.
const TRAILER_CRC: usize = 56;
const ENTRY_CRC: usize = 36;
const HEADER_CRC: usize = 60;
const PROVENANCE_CRC: usize = 48;
const PROVENANCE_HEADER: usize = 56;

/// Returns a stored JSON object with the digest of its bytes; a missing digest is added.
pub fn json(bytes: &[u8]) -> Cow<'_, [u8]> {
    if let Some(sealed) = json::sign_again(bytes) {
        return Cow::Owned(sealed);
    }
    let body = bytes.trim_ascii_end();
    let Some(body) = body.strip_suffix(b"}") else {
        return Cow::Borrowed(bytes);
    };
    let open = [body, b",\"digest\":\"", &[b'0'; 64], b"\"}\n"].concat();
    Cow::Owned(json::sign_again(&open).unwrap_or(open))
}

/// Runs `check` on the bytes unchanged and with the right digest.
pub(crate) fn each_json(bytes: &[u8], check: impl Fn(&[u8])) {
    check(bytes);
    let sealed = json(bytes);
    if *sealed != *bytes {
        check(&sealed);
    }
}

fn put_crc(bytes: &mut [u8], at: usize) {
    let crc = bytes.get(..at).map(crc32c).unwrap_or_default();
    put(bytes, at, crc);
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    let eight = bytes
        .get(at..at.saturating_add(8))
        .and_then(|eight| eight.try_into().ok());
    eight.map_or(usize::MAX, |eight| u64::from_le_bytes(eight) as usize)
}

/// Seals a trailer at the end of `bytes`.
pub fn trailer(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(TRAILER_BYTES as usize) {
        put_crc(&mut bytes[at..], TRAILER_CRC);
    }
}

/// Seals consecutive index entries.
pub fn entries(bytes: &mut [u8]) {
    for entry in bytes.chunks_mut(ENTRY_BYTES as usize) {
        put_crc(entry, ENTRY_CRC);
    }
}

/// Seals a frame: its payload's checksum, then its header's. Returns the former.
pub fn frame(bytes: &mut [u8]) -> Option<u32> {
    let header = HEADER_BYTES as usize;
    let payload = bytes.get(header..)?;
    let length = u64_at(bytes, 48).min(payload.len());
    let crc = crc32c(&payload[..length]);
    put(bytes, 56, crc);
    put_crc(bytes, HEADER_CRC);
    Some(crc)
}

/// Seals a data object: every frame that the index names, the index, and the trailer.
pub fn object(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(TRAILER_BYTES as usize) else {
        return;
    };
    let index = u64_at(bytes, end + 40).min(end);
    let (frames, rest) = bytes.split_at_mut(index);
    let last = rest.len() - TRAILER_BYTES as usize;
    for entry in rest[..last].chunks_mut(ENTRY_BYTES as usize) {
        let (start, length) = (u64_at(entry, 8), u64_at(entry, 16));
        let padded = length.checked_next_multiple_of(64).unwrap_or(usize::MAX);
        let end = start
            .saturating_add(padded)
            .saturating_add(HEADER_BYTES as usize);
        if let Some(crc) = frames.get_mut(start..end).and_then(frame) {
            put(entry, 28, crc);
        }
    }
    entries(&mut rest[..last]);
    trailer(bytes);
}

/// Seals provenance: its header, and each block as far as their lengths lead.
pub fn provenance(bytes: &mut [u8]) {
    put_crc(bytes, PROVENANCE_CRC);
    let mut at = PROVENANCE_HEADER;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(block) = bytes.get(at + 8..(at + 8).saturating_add(length)) else {
            return;
        };
        let crc = crc32c(block);
        put(bytes, at + 4, crc);
        at += 8 + length;
    }
}

/// Seals a socket message: the length in its header.
pub fn message(bytes: &mut [u8]) {
    let length = bytes.len() as u32;
    put(bytes, 8, length);
}
