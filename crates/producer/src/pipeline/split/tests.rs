//! A batch uploaded in parts equals the batch in one object, byte for byte.

use std::sync::Arc;

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, Nonce};
use batchweave_core::inputs::LinkId;
use batchweave_core::tgb::Dtype;
use prometheus::Registry;
use proptest::prelude::*;

use super::super::batch::{BatchBuilder, BatchBuilderOptions, BatchGroup};
use super::*;
use crate::config::OnBadDocument;
use crate::metrics::Metrics;
use crate::packing::{
    AddedTokens, ArraySpec, Beside, BestFit, Concat, Content, Document, Encoder, Extra, Packer,
    Point, Restart, Samples, Shape, Within,
};
use crate::pipeline::tokenize::Tokenized;
use crate::sources::Place;

const ADDED: AddedTokens = AddedTokens { end: 99, pad: 7 };

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Concat,
    BestFit,
    /// Whole documents with arrays.
    Arrays,
    Samples,
}

impl Mode {
    fn encoder(self, shape: Shape) -> Encoder {
        let array = ArraySpec {
            name: "x".into(),
            dtype: Dtype::U8,
            shape: Vec::new(),
            from: String::new(),
            image: None,
            path: false,
            shortest: None,
            base64: false,
        };
        if self == Self::Samples {
            return Encoder::samples(shape, vec![array]).unwrap();
        }
        let beside = Beside {
            extras: Extra::ALL.to_vec(),
            columns: Vec::new(),
            arrays: Vec::from_iter((self == Self::Arrays).then_some(array)),
        };
        Encoder::rows(shape, 1 << 16, &beside).unwrap()
    }

    fn packer(self, shape: Shape) -> Box<dyn Packer> {
        match self {
            Self::Concat => Box::new(Concat::new(shape, ADDED, Point::default(), true)),
            Self::BestFit | Self::Arrays => {
                Box::new(BestFit::new(shape, ADDED, 5, Restart::default()))
            }
            Self::Samples => Box::new(Samples::new(shape, Point::default())),
        }
    }

    fn document(self, unit: u64, items: usize) -> Tokenized {
        let content = match self {
            Self::Samples => Content::Sample(vec![vec![unit as u8; items].into()]),
            _ => Content::Tokens((0..items as u32).map(|n| 100 + n).collect()),
        };
        let place = Place {
            unit,
            ..Place::default()
        };
        let document = Document {
            pass: 0,
            place,
            within: Within::default(),
            content,
            columns: None,
            arrays: match self {
                Self::Arrays => vec![vec![unit as u8; 7 * items].into()],
                _ => Vec::new(),
            },
        };
        let bytes = items as u64;
        Tokenized::Document {
            beyond: None,
            truncated: None,
            document,
            more: Vec::new(),
            bytes,
            after: batchweave_core::order::Position::default(),
        }
    }
}

/// The content of a batch, in one object or in parts.
#[derive(Debug, Default, PartialEq)]
struct Made {
    payloads: Vec<Vec<u8>>,
    sources: Vec<u8>,
    sizes: (u64, u64),
    cursor: Cursor,
}

/// Returns all batches, and the number of parts of each batch that has parts.
fn make(
    mode: Mode,
    shape: Shape,
    unit: u32,
    object_bytes: u64,
    lengths: &[usize],
) -> (Vec<Made>, Vec<u32>) {
    let encoder = Arc::new(mode.encoder(shape));
    let of_unit = Shape {
        slices: unit,
        ..shape
    };
    let metrics = Metrics::new(&Registry::new()).unwrap();
    let mut batching = BatchBuilder::new(BatchBuilderOptions {
        packer: mode.packer(of_unit),
        slices: (shape.slices, unit),
        encoder: encoder.clone(),
        stages: None,
        stage: 0,
        stage_name: String::new(),
        missing: None,
        take_first: 0,
        first_new: 0,
        next_seq: 0,
        changes: None,
        batches: None,
        inputs: LinkId {
            epoch: 1,
            nonce: Nonce([0; 8]),
            files: 1,
            hash: Hash::sha256(b""),
        },
        settings: serde_json::Map::new(),
        fill_last: true,
        on_bad_document: OnBadDocument::Fail,
        strict_replay: false,
        object_bytes,
        group_batches: 4,
    });
    let mut groups = Vec::new();
    for (unit, items) in (0..).zip(lengths) {
        batching
            .push(mode.document(unit, *items), None, &metrics)
            .unwrap();
        groups.extend(std::iter::from_fn(|| {
            batching.next_group(&metrics).unwrap()
        }));
    }
    batching.end(Point::pass(1)).unwrap();
    groups.extend(std::iter::from_fn(|| {
        batching.next_group(&metrics).unwrap()
    }));
    groups.extend(batching.finish(&metrics));
    let mut batches = Vec::new();
    let mut parts = Vec::new();
    let mut open = Made::default();
    for group in groups {
        assert_eq!(group.first_seq, batches.len() as u64);
        take(&encoder, group, &mut open, &mut batches, &mut parts);
    }
    assert_eq!(open, Made::default(), "a batch without its end");
    (batches, parts)
}

fn take(
    encoder: &Encoder,
    group: BatchGroup,
    open: &mut Made,
    batches: &mut Vec<Made>,
    parts: &mut Vec<u32>,
) {
    let payload = |batch: &PackedBatch, n: usize| {
        let slice = encoder.slice(batch, n).unwrap();
        let mut out = vec![0xa5; slice.payload_len() as usize];
        slice.write(&mut out).unwrap();
        out
    };
    let Some(part) = group.part else {
        for batch in &group.batches {
            let slices = encoder.slices();
            batches.push(Made {
                payloads: (0..slices as usize).map(|n| payload(batch, n)).collect(),
                sources: batch.sources.encode(),
                sizes: (encoder.rows_of(batch, slices), batch.own),
                cursor: Cursor::default(),
            });
        }
        batches.last_mut().unwrap().cursor = group.cursor;
        return;
    };
    assert_eq!(part.first_slice as usize, open.payloads.len());
    for slice in &group.batches {
        open.payloads.push(payload(slice, 0));
        open.sizes.0 += encoder.rows_of(slice, 1);
        open.sizes.1 += slice.own;
    }
    if let Some(block) = part.last {
        (open.sources, open.cursor) = (block, group.cursor);
        batches.push(std::mem::take(open));
        parts.push(part.number + 1);
    }
}

proptest! {
    #[test]
    fn a_batch_in_parts_is_the_same_batch(
        lengths in prop::collection::vec(0usize..23, 1..60),
        slices in 2u32..6, rows_per_slice in 1u32..3, seq_len in 1u32..9,
        object_bytes in 1u64..3000,
        mode in prop::sample::select(vec![Mode::Concat, Mode::BestFit, Mode::Arrays, Mode::Samples]),
    ) {
        let seq_len = if matches!(mode, Mode::Samples) { 1 } else { seq_len };
        let shape = Shape { slices, rows_per_slice, seq_len };
        // One batch per object, so that each has its cursor.
        let (whole, none) = make(mode, shape, slices, 0, &lengths);
        prop_assert!(none.is_empty());
        let (mut cut, _) = make(mode, shape, 1, object_bytes, &lengths);
        for (cut, whole) in cut.iter_mut().zip(&whole) {
            // Of batches that share an object only the last has a cursor.
            if cut.cursor == Cursor::default() {
                cut.cursor = whole.cursor.clone();
            }
        }
        prop_assert_eq!(cut, whole);
    }
}

#[test]
fn objects_grow_so_that_a_batch_never_has_very_many() {
    let mut number = 0;
    let mut bytes = 0;
    while bytes < 10 << 30 {
        bytes += allowed(16 << 20, number);
        number += 1;
    }
    assert!(number < 130, "{number}");
    assert!(allowed(16 << 20, 127) < 144 << 20);
    let mut number = 0;
    let mut bytes = 0;
    while bytes < 1 << 30 {
        bytes += allowed(1 << 10, number);
        number += 1;
    }
    assert!(number < 256, "{number}");
    assert_eq!(allowed(u64::MAX, u32::MAX), u64::MAX);
}

#[test]
fn a_batch_that_fits_in_an_object_stays_whole_and_a_larger_one_goes_on_in_parts() {
    let shape = Shape {
        slices: 4,
        rows_per_slice: 1,
        seq_len: 1,
    };
    // Four samples per batch: 4 x 10 bytes share an object, 4 x 10 kB do not.
    let lengths = [10, 10, 10, 10, 10_000, 10_000, 10_000, 10_000];
    let (made, parts) = make(Mode::Samples, shape, 1, 12_000, &lengths);
    assert_eq!(made.len(), 2);
    assert_eq!(parts, [4]);
}
