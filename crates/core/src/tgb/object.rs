//! A whole object: every frame, the index and the trailer, and their agreement.

use super::error::{Fault, TgbError};
use super::frame::{Expect, verify};
use super::{ENTRY_BYTES, FrameHeader, IndexEntry, TRAILER_BYTES, Trailer, frame_bytes};

/// The content of a checked object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub trailer: Trailer,
    /// Its frames in order.
    pub entries: Vec<IndexEntry>,
}

/// Checks every byte of an object without the log. `key` is for messages. The caller compares the identity.
pub fn check_object(bytes: &[u8], key: &str) -> Result<Contents, TgbError> {
    let whole = |fault| TgbError::at(key, fault);
    let trailer = Trailer::decode(bytes).map_err(whole)?;
    let entries = index(bytes, &trailer).map_err(whole)?;
    order(&entries, &trailer).map_err(whole)?;
    for entry in &entries {
        frame(bytes, key, entry, &trailer)?;
    }
    Ok(Contents { trailer, entries })
}

fn index(bytes: &[u8], trailer: &Trailer) -> Result<Vec<IndexEntry>, Fault> {
    let (expected, found) = (trailer.object_bytes(), bytes.len() as u64);
    if expected != found {
        return Err(Fault::Length {
            what: "the object",
            expected,
            found,
        });
    }
    let index = trailer.index_offset as usize..bytes.len() - TRAILER_BYTES as usize;
    bytes[index]
        .chunks(ENTRY_BYTES as usize)
        .map(IndexEntry::decode)
        .collect()
}

/// Checks that frames tile the bytes before the index, and that TGBs and the slices within each are
/// numbered consecutively.
fn order(entries: &[IndexEntry], trailer: &Trailer) -> Result<(), Fault> {
    let Trailer {
        first_seq,
        frames,
        tgbs,
        ..
    } = *trailer;
    let mut start = 0;
    let mut before: Option<&IndexEntry> = None;
    for entry in entries {
        let end = frame_bytes(entry.payload_bytes)
            .and_then(|n| n.checked_add(entry.offset))
            .unwrap_or(u64::MAX);
        if entry.offset != start || end > trailer.index_offset {
            return Err(Fault::Offset {
                start: entry.offset,
                end,
            });
        }
        start = end;
        let what = "an index entry";
        let same = before.filter(|b| b.seq == entry.seq);
        let next = before.map_or(first_seq, |b| b.seq.saturating_add(1));
        if same.is_none() && entry.seq != next {
            return Err(Fault::Seq {
                what,
                expected: next,
                found: entry.seq,
            });
        }
        // The first TGB may continue one of another object.
        let expected = same
            .map(|b| b.slice.saturating_add(1))
            .or(before.map(|_| 0));
        if let Some(expected) = expected.filter(|&slice| slice != entry.slice) {
            return Err(Fault::Slice {
                what,
                expected,
                found: entry.slice,
            });
        }
        before = Some(entry);
    }
    let held = before.map_or(0, |last| last.seq - first_seq + 1);
    if held == 0 || held != u64::from(tgbs) || start != trailer.index_offset {
        return Err(Fault::Counts { frames, tgbs });
    }
    Ok(())
}

fn frame(bytes: &[u8], key: &str, entry: &IndexEntry, trailer: &Trailer) -> Result<(), TgbError> {
    let (identity, seq, slice) = (trailer.identity, entry.seq, entry.slice);
    let expect = Expect {
        key,
        step: None,
        identity,
        seq,
        slice,
    };
    let end = entry.offset + frame_bytes(entry.payload_bytes).unwrap_or(0);
    let frame = &bytes[entry.offset as usize..end as usize];
    verify(frame, &expect)?;
    let header = FrameHeader::decode(frame).map_err(|fault| expect.error(fault))?;
    let same =
        header.payload_bytes == entry.payload_bytes && header.payload_crc == entry.payload_crc;
    if same {
        Ok(())
    } else {
        Err(expect.error(Fault::Disagree))
    }
}
