//! Read plans: exactly the wanted slices are read, in few requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Expect, Identity, TgbData, pack, verify};
use super::*;
use crate::ids::StreamId;

fn identity() -> Identity {
    Identity::new(StreamId::from_random([1; 16]), &"p".parse().unwrap(), 3)
}

fn tgb(seq: Seq, sizes: &[usize]) -> TgbData {
    let payload =
        |(slice, &size): (usize, &usize)| Bytes::from(vec![(slice as u8) ^ (seq as u8); size]);
    let slices = sizes.iter().enumerate().map(payload).collect();
    TgbData {
        seq,
        rows: 1,
        tokens: 1,
        provenance: None,
        slices,
    }
}

fn part(frame_bytes: Option<u64>) -> ObjectPart {
    ObjectPart {
        key: "k".into(),
        offset: 640,
        length: 4 * 128,
        first_slice: 8,
        slices: 4,
        frame_bytes,
        index: frame_bytes.is_none().then_some(4096),
    }
}

#[test]
fn frames_of_one_size_need_no_index() {
    let part = part(Some(128));
    let wanted = PartSlices {
        step: 5,
        seq: 2,
        part: &part,
        slices: 9..11,
    };
    let Located::Frames(frames) = wanted.locate() else {
        panic!("an index read was asked for")
    };
    assert_eq!(
        frames.iter().map(|f| f.range.clone()).collect::<Vec<_>>(),
        [768..896, 896..1024]
    );
    assert_eq!(frames.iter().map(|f| f.slice).collect::<Vec<_>>(), [9, 10]);
}

#[test]
fn only_the_wanted_entries_are_read() {
    let part = part(None);
    let wanted = PartSlices {
        step: 5,
        seq: 2,
        part: &part,
        slices: 9..11,
    };
    assert_eq!(wanted.locate(), Located::Index(4136..4216));
}

#[test]
fn index_entries_are_checked() {
    let part = part(None);
    let wanted = PartSlices {
        step: 5,
        seq: 2,
        part: &part,
        slices: 9..10,
    };
    let good = IndexEntry {
        seq: 2,
        offset: 768,
        payload_bytes: 60,
        slice: 9,
        payload_crc: 0,
    };
    let frames = wanted.from_index(&good.encode()).unwrap();
    assert_eq!(frames[0].range, 768..896);
    let mut flipped = good.encode();
    flipped[9] ^= 1;
    let cases: [(Vec<u8>, &str); 9] = [
        (flipped.to_vec(), "Crc"),
        (vec![], "Truncated"),
        (good.encode()[..39].to_vec(), "Truncated"),
        ([good.encode(), good.encode()].concat(), "Truncated"),
        (IndexEntry { seq: 3, ..good }.encode().to_vec(), "Seq"),
        (IndexEntry { slice: 8, ..good }.encode().to_vec(), "Slice"),
        (
            IndexEntry {
                offset: 576,
                ..good
            }
            .encode()
            .to_vec(),
            "Offset",
        ),
        (
            IndexEntry {
                offset: 1088,
                ..good
            }
            .encode()
            .to_vec(),
            "Offset",
        ),
        (
            IndexEntry {
                payload_bytes: u64::MAX,
                ..good
            }
            .encode()
            .to_vec(),
            "Offset",
        ),
    ];
    for (bytes, variant) in cases {
        let error = wanted.from_index(&bytes).unwrap_err();
        assert!(
            format!("{:?}", error.fault).starts_with(variant),
            "{variant}: {error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("k (step 5, seq 2, slice 9): "),
            "{error}"
        );
    }
}

#[test]
fn a_nodes_slices_are_one_read() {
    let sizes = [100; 8];
    let packed = pack(
        identity(),
        &[tgb(0, &sizes), tgb(1, &sizes)],
        1 << 20,
        |_| "k".into(),
    )
    .unwrap();
    let frames = |slices: Range<u32>| {
        let of = |(seq, tgb)| part_slices(seq, seq, tgb, slices.clone());
        let all: Vec<_> = (0_u64..).zip(&packed.tgbs).flat_map(of).collect();
        let located = all.iter().flat_map(|w| match w.locate() {
            Located::Frames(frames) => frames,
            Located::Index(_) => panic!("an index read was asked for"),
        });
        located.collect::<Vec<_>>()
    };
    assert_eq!(
        coalesce(&frames(0..8), u64::MAX).len(),
        1,
        "two whole TGBs of one object"
    );
    assert_eq!(
        coalesce(&frames(2..4), u64::MAX).len(),
        2,
        "two neighbours of each TGB"
    );
    let small = coalesce(&frames(0..8), 3 * 192);
    assert_eq!(small.len(), 6);
    assert!(small.iter().all(|read| read.bytes() <= 3 * 192));
    assert_eq!(coalesce(&frames(0..8), 1).len(), 16, "a frame is never cut");
}

#[test]
fn pieces_of_large_reads_are_8_to_17_mib() {
    let mib = 1 << 20;
    for bytes in [
        1,
        64,
        16 * mib,
        16 * mib + 64,
        17 * mib,
        17 * mib + 64,
        100 * mib,
        (1 << 30) + 192,
    ] {
        let read = Read {
            key: "k".into(),
            range: 192..192 + bytes,
            frames: vec![],
        };
        let pieces = read.pieces();
        assert_eq!(
            (pieces[0].start, pieces[pieces.len() - 1].end),
            (192, 192 + bytes)
        );
        assert!(
            pieces
                .windows(2)
                .all(|p| p[0].end == p[1].start && p[0].start < p[0].end)
        );
        assert!(
            pieces.iter().all(|p| p.end - p.start <= 17 * mib),
            "{bytes}: {pieces:?}"
        );
        assert!(
            pieces.len() == 1 || pieces.iter().all(|p| p.end - p.start >= 8 * mib - 4096),
            "{pieces:?}"
        );
    }
}

#[test]
fn headers_do_not_cost_a_request() {
    let mib = 1 << 20;
    for slices in [1, 2, 8, 16, 64, 256] {
        let bytes = 16 * mib / slices + 64;
        let frames = (0..slices).map(|n| Frame {
            step: 0,
            seq: 0,
            slice: n as u32,
            key: "k",
            range: n * bytes..(n + 1) * bytes,
        });
        let reads = coalesce(&frames.collect::<Vec<_>>(), with_headers(16 * mib));
        let requests: usize = reads.iter().map(|read| read.pieces().len()).sum();
        assert_eq!(requests, 1, "{slices} slices of 16 MiB together");
    }
}

proptest! {
    /// Packs, plans, reads and checks: every wanted slice comes back, and no byte more is read.
    #[test]
    fn packed_slices_are_read(
        sizes in (1..7_usize).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(0..400_usize, n), 1..5)),
        equal in any::<bool>(),
        object_bytes in 1..3000_u64,
        read_bytes in 1..2000_u64,
        cut in (0..7_u32, 0..8_u32),
    ) {
        let sizes: Vec<_> = sizes.into_iter().map(|s| if equal { vec![s[0]; s.len()] } else { s }).collect();
        let slices = sizes[0].len() as u32;
        let tgbs: Vec<_> = (7..).zip(&sizes).map(|(seq, sizes)| tgb(seq, sizes)).collect();
        let packed = pack(identity(), &tgbs, object_bytes, |n| format!("object-{n}")).unwrap();
        let store: BTreeMap<_, _> = packed.objects.iter().map(|o| (o.key.as_str(), &o.bytes)).collect();
        let range = cut.0.min(slices)..cut.1.min(slices).max(cut.0.min(slices));
        let mut got = Vec::new();
        for ((data, record), step) in tgbs.iter().zip(&packed.tgbs).zip(100..) {
            prop_assert_eq!(record.check(slices), Ok(()));
            let mut frames = Vec::new();
            let wanted = part_slices(step, data.seq, record, range.clone());
            for wanted in &wanted {
                match wanted.locate() {
                    Located::Frames(known) => frames.extend(known),
                    Located::Index(at) => {
                        prop_assert!(!equal);
                        let bytes = &store[wanted.part.key.as_str()][at.start as usize..at.end as usize];
                        frames.extend(wanted.from_index(bytes).unwrap());
                    }
                }
            }
            let needed: u64 = frames.iter().map(|f| f.range.end - f.range.start).sum();
            let reads = coalesce(&frames, read_bytes);
            prop_assert_eq!(reads.iter().map(Read::bytes).sum::<u64>(), needed);
            for read in &reads {
                let bytes = &store[read.key.as_str()][read.range.start as usize..read.range.end as usize];
                for slot in &read.frames {
                    let frame = &bytes[slot.offset as usize..][..slot.bytes as usize];
                    let (seq, slice) = (slot.seq, slot.slice);
                    let expect = Expect { key: &read.key, step: Some(step), identity: identity(), seq, slice };
                    let payload = verify(frame, &expect).unwrap();
                    prop_assert_eq!(&frame[payload], &data.slices[slice as usize][..]);
                    got.push((seq, slice));
                }
            }
        }
        let all: Vec<_> = tgbs.iter().flat_map(|t| range.clone().map(move |slice| (t.seq, slice))).collect();
        prop_assert_eq!(got, all);
    }
}
