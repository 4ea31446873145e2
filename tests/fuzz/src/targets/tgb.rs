//! Data objects: frames, index, trailer, and the payload's own header.

use batchweave_core::crc::Crc32c;
use batchweave_core::ids::{ProducerName, StreamId};
use batchweave_core::limits::SLICES_MAX;
use batchweave_core::tgb::ranges::{Located, coalesce, part_slices};
use batchweave_core::tgb::{
    ENTRY_BYTES, Expect, FrameHeader, HEADER_BYTES, IndexEntry, Layout, TgbRecord, Trailer,
    bin_ranges, check_object, verify, verify_summed,
};

use crate::check::good;
use crate::seal;

/// Returns the bytes unchanged and with the right checksums.
fn each(input: &[u8], put: impl Fn(&mut [u8]), check: impl Fn(&[u8])) {
    check(input);
    let mut sealed = input.to_vec();
    put(&mut sealed);
    if sealed != input {
        check(&sealed);
    }
}

pub(super) fn object(input: &[u8]) {
    each(input, seal::object, |bytes| {
        if let Ok(trailer) = Trailer::decode(bytes) {
            assert!(bytes.ends_with(&trailer.encode()));
            let _ = trailer.object_bytes();
        }
        let Ok(contents) = check_object(bytes, "k") else {
            return;
        };
        let mut index = Vec::new();
        for entry in &contents.entries {
            index.extend_from_slice(&entry.encode());
            let at = entry.offset as usize;
            let header = good(
                FrameHeader::decode(&bytes[at..]),
                "a frame of a good object",
            );
            let payload =
                at + HEADER_BYTES as usize..at + (HEADER_BYTES + header.payload_bytes) as usize;
            let _ = Layout::parse(&bytes[payload]);
        }
        let at = contents.trailer.index_offset as usize;
        assert!(bytes[at..].starts_with(&index), "the index, written again");
    });
}

/// One frame, as a reader expects it.
pub(super) fn frame(input: &[u8]) {
    let put = |bytes: &mut [u8]| _ = seal::frame(bytes);
    each(input, put, |bytes| {
        let Ok(header) = FrameHeader::decode(bytes) else {
            return;
        };
        assert!(bytes.starts_with(&header.encode()));
        let expect = Expect {
            key: "k",
            step: Some(3),
            identity: header.identity,
            seq: header.seq,
            slice: header.slice,
        };
        let mut body = Crc32c::new();
        body.update(&bytes[HEADER_BYTES as usize..]);
        let found = verify(bytes, &expect);
        assert_eq!(
            verify_summed(bytes, &body, &expect),
            found,
            "two ways to verify"
        );
        let identity = batchweave_core::tgb::Identity {
            stream: StreamId([0; 16]),
            ..header.identity
        };
        let other = Expect { identity, ..expect };
        let own = header.identity.stream == identity.stream;
        assert_eq!(verify(bytes, &other).is_ok(), own && found.is_ok());
        if let Ok(payload) = found {
            let _ = Layout::parse(&bytes[payload]);
        }
    });
}

/// Index entries and a trailer, read apart from their frames.
pub(super) fn index(input: &[u8]) {
    each(input, seal::entries, |bytes| {
        for entry in bytes.chunks(ENTRY_BYTES as usize) {
            if let Ok(read) = IndexEntry::decode(entry) {
                assert_eq!(read.encode()[..], *entry);
            }
        }
    });
    each(input, seal::trailer, |bytes| {
        if let Ok(trailer) = Trailer::decode(bytes) {
            assert!(bytes.ends_with(&trailer.encode()));
            assert!(trailer.object_bytes() >= trailer.index_offset);
        }
    });
}

/// A line of JSON with the location of a TGB, then bytes of an index.
pub(super) fn ranges(input: &[u8]) {
    let split = input.iter().position(|&byte| byte == b'\n');
    let (record, index) = input.split_at(split.unwrap_or(input.len()));
    if let Ok(tgb) = serde_json::from_slice::<TgbRecord>(record) {
        plan(&tgb, 3, index.get(1..).unwrap_or_default());
    }
}

/// Plans the reads of a TGB whose record is valid.
pub(super) fn plan(tgb: &TgbRecord, seq: u64, index: &[u8]) {
    // At most as many slices as an input may use memory for.
    let slices = tgb
        .parts
        .iter()
        .map(|part| u64::from(part.slices))
        .sum::<u64>();
    if slices > 256 || tgb.check(slices as u32).is_err() {
        return;
    }
    let _ = (tgb.bytes(), tgb.check(SLICES_MAX));
    let mut entries = index.to_vec();
    seal::entries(&mut entries);
    for want in part_slices(7, seq, tgb, 0..slices as u32) {
        let frames = match want.locate() {
            Located::Frames(frames) => frames,
            Located::Index(range) => {
                assert!(range.start <= range.end);
                let need = ((range.end - range.start) as usize).min(entries.len());
                let _ = want.from_index(index);
                want.from_index(&entries[..need]).unwrap_or_default()
            }
        };
        for limit in [0, 1 << 20, u64::MAX] {
            for read in coalesce(&frames, limit) {
                let bytes: u64 = read.frames.iter().map(|frame| frame.bytes).sum();
                assert_eq!(bytes, read.bytes());
                if bytes < 1 << 30 {
                    let pieces = read.pieces();
                    let all: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
                    assert_eq!(all, bytes, "pieces of one read");
                }
            }
        }
    }
    let _ = batchweave_core::tgb::Identity::new(StreamId([1; 16]), &producer(), 1);
}

fn producer() -> ProducerName {
    good("a".parse(), "a name")
}

/// Writes the right length of a payload's header.
fn put_length(bytes: &mut [u8]) {
    let end = bytes
        .iter()
        .rposition(|&byte| byte == b'}')
        .map_or(0, |at| at + 1);
    let length = end.next_multiple_of(64).saturating_sub(8).min(bytes.len());
    if let Some(place) = bytes.get_mut(..8) {
        place.copy_from_slice(&(length as u64).to_le_bytes());
    }
}

/// The borders of bins in a slice's payload: those that are taken divide its tokens.
pub(super) fn bins(input: &[u8]) {
    each(input, put_length, |bytes| {
        let Ok(layout) = Layout::parse(bytes) else {
            return;
        };
        let Some(bins) = bin_ranges(&layout, bytes) else {
            return;
        };
        let tokens = layout.array("tokens").map_or(0, |array| array.shape[0]);
        let mut end = 0;
        for bin in bins {
            assert!(bin.start == end && bin.end >= end, "neighbours");
            end = bin.end;
        }
        assert_eq!(end as u64, tokens, "all tokens");
    });
}

/// A slice's payload, and its header unchanged and with the right length.
pub(super) fn payload(input: &[u8]) {
    each(input, put_length, |bytes| {
        let Ok(layout) = Layout::parse(bytes) else {
            return;
        };
        assert!(bytes.starts_with(&layout.header()));
        assert_eq!(layout.payload_len(), bytes.len() as u64);
        let again = layout.encode_with(|array, data| {
            let at = array.offset as usize;
            data.copy_from_slice(&bytes[at..at + array.bytes as usize]);
            Ok(())
        });
        assert_eq!(good(again, "a payload is written again"), bytes);
        for array in layout.arrays() {
            assert!(array.offset + array.bytes <= layout.payload_len());
            assert_eq!(layout.array(&array.name), Some(array));
        }
    });
}
