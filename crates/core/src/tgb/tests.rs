//! Objects: golden files, each rule broken once, flipped bits, arbitrary bytes.

use std::path::PathBuf;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::crc::crc32c;

mod rules;

fn identity() -> Identity {
    Identity::new(
        StreamId::from_random([0x5a; 16]),
        &"tok-0".parse().unwrap(),
        2,
    )
}

/// Two TGBs of three slices of text, all of one size.
fn equal() -> Vec<TgbData> {
    let layout = Layout::tokens(Dtype::U16, 2, 9).unwrap();
    let slice = |n: u32| {
        layout
            .encode_tokens(&(n..n + 18).collect::<Vec<_>>())
            .unwrap()
            .into()
    };
    let tgb = |seq: u64| TgbData {
        seq,
        rows: 6,
        tokens: 48,
        provenance: None,
        slices: (0..3).map(|i| slice(seq as u32 * 100 + i * 20)).collect(),
    };
    vec![tgb(7), tgb(8)]
}

/// The same with another number of rows in the middle slice.
fn unequal() -> Vec<TgbData> {
    let mut tgbs = equal();
    let layout = Layout::tokens(Dtype::U32, 5, 9).unwrap();
    tgbs[0].slices[1] = layout.encode_tokens(&[70_000; 45]).unwrap().into();
    tgbs
}

fn object(tgbs: &[TgbData]) -> Object {
    let mut packed = pack(identity(), tgbs, 1 << 20, |_| {
        "data/tok-0/2-00/7-8.0.0.tgb".into()
    })
    .unwrap();
    assert_eq!(packed.objects.len(), 1);
    packed.objects.remove(0)
}

/// Compares with a file of tests/golden; `BLESS=1` writes it instead.
fn golden(name: &str, bytes: &[u8]) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let path = folder.join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let stored = std::fs::read(&path).unwrap_or_default();
    assert!(
        stored == bytes,
        "{} differs: the stored format must never change",
        path.display()
    );
}

#[test]
fn objects_match_version_1_byte_for_byte() {
    golden("tgb-v1-equal.tgb", &object(&equal()).bytes);
    golden("tgb-v1-unequal.tgb", &object(&unequal()).bytes);
    let mut records = Vec::new();
    for tgbs in [equal(), unequal()] {
        records.extend(
            pack(identity(), &tgbs, 1 << 20, |n| format!("object-{n}"))
                .unwrap()
                .tgbs,
        );
    }
    golden(
        "tgb-v1-records.json",
        &serde_json::to_vec_pretty(&records).unwrap(),
    );
}

#[test]
fn reused_memory_does_not_leak_into_an_object() {
    for tgbs in [equal(), unequal()] {
        let fresh = object(&tgbs).bytes;
        for room in [0, 1000, fresh.len() - 1, fresh.len() + 100_000] {
            let mut builder = ObjectBuilder::new(identity()).within(vec![0xa5; room]);
            for tgb in &tgbs {
                builder.push_tgb(tgb.seq, &tgb.slices).unwrap();
            }
            let made = builder.finish("key").unwrap();
            assert!(made.bytes == fresh, "in {room} bytes");
        }
    }
}

#[test]
fn the_index_of_an_object_matches_its_tgbs() {
    let tgbs = unequal();
    let object = object(&tgbs);
    let contents = check_object(&object.bytes, &object.key).unwrap();
    assert_eq!(contents.trailer.identity, identity());
    assert_eq!(
        (
            contents.trailer.first_seq,
            contents.trailer.tgbs,
            contents.trailer.frames
        ),
        (7, 2, 6)
    );
    for (tgb, run) in tgbs.iter().zip(&object.runs) {
        let index = contents.entries.iter().filter(|e| e.seq == tgb.seq);
        let from_index = Digest::from_crcs(index.map(|e| e.payload_crc));
        assert_eq!(
            from_index,
            Digest::from_crcs(tgb.slices.iter().map(|s| crc32c(s)))
        );
        assert_eq!(from_index, Digest::from_crcs(run.crcs.iter().copied()));
    }
    assert!(object.runs[0].part.index.is_some() && object.runs[1].part.frame_bytes.is_some());
}

#[test]
fn payload_data_is_aligned_in_the_object() {
    let object = object(&unequal());
    for entry in check_object(&object.bytes, &object.key).unwrap().entries {
        let start = (entry.offset + HEADER_BYTES) as usize;
        let payload = &object.bytes[start..start + entry.payload_bytes as usize];
        let layout = Layout::parse(payload).unwrap();
        assert_eq!((start as u64 + layout.arrays()[0].offset) % ALIGN_BYTES, 0);
    }
}

#[test]
fn small_tgbs_share_an_object_and_large_ones_are_cut() {
    let tgbs = equal();
    let keys = |bytes| {
        let packed = pack(identity(), &tgbs, bytes, |n| format!("object-{n}")).unwrap();
        for object in &packed.objects {
            check_object(&object.bytes, &object.key).unwrap();
        }
        let parts = packed.tgbs.iter().map(|t| {
            t.parts
                .iter()
                .map(|p| (p.key[7..].parse().unwrap(), p.slices))
        });
        parts
            .map(Iterator::collect::<Vec<(u32, u32)>>)
            .collect::<Vec<_>>()
    };
    let frame = frame_bytes(equal()[0].slices[0].len() as u64).unwrap();
    assert_eq!(keys(6 * frame), [[(0, 3)], [(0, 3)]], "both in one");
    assert_eq!(
        keys(5 * frame),
        [[(0, 3)], [(1, 3)]],
        "not cut without need"
    );
    assert_eq!(
        keys(2 * frame),
        [[(0, 2), (1, 1)], [(1, 1), (2, 2)]],
        "cut between slices"
    );
    assert_eq!(
        keys(1).concat(),
        (0..6).map(|n| (n, 1)).collect::<Vec<_>>(),
        "one slice each"
    );
}

#[test]
fn builders_refuse_gaps_and_emptiness() {
    let none: [&[u8]; 0] = [];
    let mut builder = ObjectBuilder::new(identity());
    assert_eq!(
        builder.push_tgb(1, &none),
        Err(BuildError::Empty { seq: 1 })
    );
    assert!(ObjectBuilder::new(identity()).finish("k").is_err());
    builder.push_slice(1, 4, b"x").unwrap();
    for (seq, slice) in [(1, 4), (1, 6), (0, 0), (3, 0), (2, 1)] {
        let error = builder.push_slice(seq, slice, b"x").unwrap_err();
        assert_eq!(
            error,
            BuildError::Order {
                seq,
                slice,
                last_seq: 1,
                last_slice: 4
            }
        );
    }
    builder.push_slice(1, 5, b"x").unwrap();
    builder.push_slice(2, 0, b"x").unwrap();
    let slice = crate::limits::SLICES_MAX;
    let mut wide = ObjectBuilder::new(identity());
    assert_eq!(
        wide.push_slice(1, slice, b""),
        Err(BuildError::TooLarge { seq: 1 })
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let object = object(&unequal());
    let mut bytes = object.bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(
            check_object(&bytes, "k").is_err(),
            "bit {bit} of {}",
            bytes.len() * 8
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = object(&equal()).bytes;
    for length in 0..bytes.len() {
        assert!(
            check_object(&bytes[..length], "k").is_err(),
            "{length} bytes"
        );
        assert!(
            check_object(&bytes[bytes.len() - length..], "k").is_err(),
            "last {length} bytes"
        );
    }
    assert!(check_object(&[&bytes[..], &bytes[..]].concat(), "k").is_err());
}

fn expect() -> Expect<'static> {
    Expect {
        key: "k",
        step: Some(4),
        identity: identity(),
        seq: 7,
        slice: 0,
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(check_object(&bytes, "k").is_err());
        prop_assert!(verify(&bytes, &expect()).is_err());
        prop_assert!(IndexEntry::decode(&bytes).is_err());
    }

    /// Any values in any fields, under right checksums, so that the checks behind them are reached.
    #[test]
    fn no_fields_make_a_reader_panic(
        seq in any::<u64>(), slice in any::<u32>(), payload_bytes in any::<u64>(), offset in any::<u64>(),
        tgbs in any::<u32>(), frames in 0..3_u32, index_offset in prop_oneof![Just(128_u64), any::<u64>()],
        near in any::<[bool; 4]>(),
    ) {
        let pick = |i: usize, good: u64, any: u64| if near[i] { good } else { any };
        let entry = IndexEntry {
            seq: pick(0, 7, seq),
            offset: pick(1, 0, offset),
            payload_bytes: pick(2, 5, payload_bytes),
            slice,
            payload_crc: 0,
        };
        let identity = identity();
        let header = FrameHeader { identity, seq: entry.seq, slice, payload_bytes: entry.payload_bytes, payload_crc: 0 };
        let trailer = Trailer { identity, first_seq: pick(3, 7, seq), tgbs, frames, index_offset };
        let mut bytes = header.encode().to_vec();
        bytes.resize(128, 0);
        let expect = Expect { seq: entry.seq, slice, ..expect() };
        prop_assert!(verify(&bytes, &expect).is_err());
        for _ in 0..frames {
            bytes.extend(entry.encode());
        }
        bytes.extend(trailer.encode());
        prop_assert!(check_object(&bytes, "k").is_err());
        let _ = FrameHeader::decode(&bytes).unwrap().frame_bytes();
    }

    #[test]
    fn damage_is_noticed(at in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..6)) {
        let object = object(&unequal());
        let mut bytes = object.bytes.to_vec();
        for (index, mask) in at {
            let at = index.index(bytes.len());
            bytes[at] ^= mask;
        }
        prop_assert_eq!(check_object(&bytes, "k").is_err(), bytes != object.bytes);
    }

    #[test]
    fn frames_of_any_payload_round_trip(payload in prop::collection::vec(any::<u8>(), 0..300), slice in 0..1000_u32) {
        let mut builder = ObjectBuilder::new(identity());
        builder.push_slice(7, slice, &payload).unwrap();
        let object = builder.finish("k").unwrap();
        let run = &object.runs[0];
        prop_assert_eq!(run.part.check(), Ok(()));
        let frame = object.bytes.slice(run.part.offset as usize..run.part.end() as usize);
        let range = verify(&frame, &Expect { slice, ..expect() }).unwrap();
        prop_assert_eq!(Bytes::from(payload), frame.slice(range));
        check_object(&object.bytes, "k").unwrap();
    }
}
