//! The optional arrays of slices.

use batchweave_core::tgb::{Dtype, Layout};

use super::*;

fn all_extras() -> Beside {
    Beside {
        extras: Extra::ALL.to_vec(),
        columns: Vec::new(),
        arrays: Vec::new(),
    }
}

/// Returns the payloads of a batch's slices.
fn encoded(encoder: &Encoder, batch: &PackedBatch) -> Vec<Vec<u8>> {
    let payload = |n: usize| {
        let slice = encoder.slice(batch, n).unwrap();
        let mut out = vec![0xa5; slice.payload_len() as usize];
        slice.write(&mut out).unwrap();
        out
    };
    (0..encoder.slices() as usize).map(payload).collect()
}

fn ints(slices: &[Vec<u8>], slice: usize, name: &str) -> Vec<i64> {
    let payload = &slices[slice];
    let layout = Layout::parse(payload).unwrap();
    let array = layout.array(name).unwrap();
    let data = &payload[array.offset as usize..][..array.bytes as usize];
    let item = |b: &[u8]| {
        let mut wide = [0; 8];
        wide[..b.len()].copy_from_slice(b);
        let value = i64::from_le_bytes(wide);
        if array.dtype == Dtype::I32 {
            i64::from(value as i32)
        } else {
            value
        }
    };
    data.chunks(array.dtype.bytes() as usize)
        .map(item)
        .collect()
}

#[test]
fn segments_of_an_endless_sequence() {
    let documents = [
        document(0, &[1, 2]),
        document(1, &[]),
        document(2, &[3, 4, 5]),
    ];
    let (batches, full) = pack(
        concat(SHAPE, Restart::default()),
        &documents,
        Point::default(),
    );
    assert_eq!((batches.len(), full), (2, 1));
    let encoder = Encoder::rows(SHAPE, 1 << 16, &all_extras()).unwrap();
    let first = encoded(&encoder, &batches[0]);
    // The sequence: 1 2 E | E | 3 4 5 E, with rows of four that share a token.
    assert_eq!(ints(&first, 0, "tokens"), [1, 2, 99, 99]);
    assert_eq!(ints(&first, 0, "segment_ids"), [1, 1, 1, 2]);
    assert_eq!(ints(&first, 0, "positions"), [0, 1, 2, 0]);
    assert_eq!(ints(&first, 0, "document_ids"), [0, 0, 0, 1]);
    assert_eq!(ints(&first, 0, "loss_mask"), [1, 1, 1, 1]);
    assert_eq!(ints(&first, 0, "cu_seqlens"), [0, 3, 3, 3]);
    assert_eq!(ints(&first, 0, "num_segments"), [1]);
    assert_eq!(ints(&first, 1, "tokens"), [99, 3, 4, 5]);
    assert_eq!(ints(&first, 1, "segment_ids"), [1, 2, 2, 2]);
    assert_eq!(ints(&first, 1, "cu_seqlens"), [0, 1, 3, 3]);
    assert_eq!(ints(&first, 1, "num_segments"), [2]);
    let last = encoded(&encoder, &batches[1]);
    assert_eq!(ints(&last, 0, "tokens"), [5, 99, 7, 7]);
    assert_eq!(ints(&last, 0, "segment_ids"), [1, 1, 0, 0]);
    assert_eq!(ints(&last, 0, "document_ids"), [2, 2, -1, -1]);
    assert_eq!(ints(&last, 0, "loss_mask"), [1, 1, 0, 0]);
    assert_eq!(ints(&last, 1, "segment_ids"), [0; 4]);
    assert_eq!(ints(&last, 1, "num_segments"), [0]);
}

#[test]
fn what_begins_a_document_has_nothing_before_it() {
    let shape = Shape {
        slices: 1,
        rows_per_slice: 1,
        seq_len: 6,
    };
    let turns = Document {
        pass: 0,
        place: place(1),
        within: Within::default(),
        content: Content::Turns(vec![5, 6, 8], vec![false, true, true]),
        columns: None,
        arrays: Vec::new(),
    };
    let documents = [document(0, &[1, 2]), turns];
    let (batches, _) = pack(
        best_fit(shape, 2, Restart::default()),
        &documents,
        Point::default(),
    );
    let encoder = Encoder::rows(shape, 1 << 17, &all_extras()).unwrap();
    let tgb = encoded(&encoder, &batches[0]);
    assert_eq!(ints(&tgb, 0, "tokens"), [1, 2, 99, 5, 6, 8, 7]);
    assert_eq!(ints(&tgb, 0, "loss_mask"), [0, 1, 1, 0, 1, 1, 0]);
    assert_eq!(ints(&tgb, 0, "segment_ids"), [1, 1, 1, 2, 2, 2, 0]);
    assert_eq!(ints(&tgb, 0, "positions"), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(ints(&tgb, 0, "cu_seqlens"), [0, 3, 6, 6, 6, 6, 6]);
    assert_eq!(ints(&tgb, 0, "num_segments"), [2]);
    assert_eq!(batches[0].own, 6);
}

#[test]
fn tokens_carry_the_columns_of_their_document() {
    let number = |name: &str, dtype| ArraySpec {
        name: name.to_owned(),
        dtype,
        shape: Vec::new(),
        base64: false,
        image: None,
        path: false,
        shortest: None,
        from: String::new(),
    };
    let beside = Beside {
        extras: Vec::new(),
        columns: vec![number("unit", Dtype::U8), number("version", Dtype::I64)],
        arrays: Vec::new(),
    };
    assert!(beside.needs_segments());
    let encoder = Encoder::rows(SHAPE, 1 << 16, &beside).unwrap();
    let documents = [document(3, &[1, 2]), document(4, &[5])];
    let start = Restart::default();
    let (batches, _) = pack(concat(SHAPE, start.clone()), &documents, Point::default());
    let first = encoded(&encoder, &batches[0]);
    // The sequence: 1 2 E | 5 E, with rows of four that share a token.
    assert_eq!(ints(&first, 0, "unit"), [3, 3, 3, 4]);
    assert_eq!(ints(&first, 0, "version"), [1003, 1003, 1003, 1004]);
    assert_eq!(ints(&first, 1, "unit"), [4, 4, 0, 0]);
    let (batches, _) = pack(best_fit(SHAPE, 4, start), &documents, Point::default());
    let first = encoded(&encoder, &batches[0]);
    assert_eq!(ints(&first, 0, "tokens"), [1, 2, 99, 7]);
    assert_eq!(ints(&first, 0, "version"), [1003, 1003, 1003, 0]);
    assert_eq!(ints(&first, 1, "version"), [1004, 1004, 0, 0]);
    // The number of the source is the last value.
    let beside = Beside {
        extras: vec![Extra::SourceIds],
        columns: vec![number("unit", Dtype::U8)],
        arrays: Vec::new(),
    };
    let encoder = Encoder::rows(SHAPE, 1 << 16, &beside).unwrap();
    let first = encoded(&encoder, &batches[0]);
    assert_eq!(ints(&first, 0, "source_ids"), [1003, 1003, 1003, 0]);
    assert_eq!(ints(&first, 0, "unit"), [3, 3, 3, 0]);
}

#[test]
fn arrays_lie_in_the_order_of_the_segments_of_each_row() {
    let shape = Shape {
        slices: 2,
        rows_per_slice: 2,
        seq_len: 5,
    };
    let image = ArraySpec {
        name: "image".to_owned(),
        dtype: Dtype::U16,
        shape: vec![2],
        from: String::new(),
        base64: false,
        image: None,
        path: false,
        shortest: None,
    };
    let beside = Beside {
        extras: vec![Extra::SegmentIds],
        columns: Vec::new(),
        arrays: vec![image],
    };
    let encoder = Encoder::rows(shape, 1 << 16, &beside).unwrap();
    assert_eq!(encoder.batch_bytes(), None);
    // With their end tokens 3, 5, 3, 4 and 1, in rows of 6; the second one has no items.
    let documents = [(2, 1), (4, 0), (2, 2), (3, 1), (0, 1)];
    let documents: Vec<_> = (0..)
        .zip(documents)
        .map(|(unit, (tokens, items))| Document {
            arrays: vec![vec![unit as u8 + 1; 4 * items].into()],
            ..document(unit, &vec![unit as u32; tokens])
        })
        .collect();
    let start = Restart::default();
    let (batches, _) = pack(best_fit(shape, 8, start), &documents, Point::default());
    let [batch] = &batches[..] else {
        panic!("{} batches", batches.len())
    };
    let tgb = encoded(&encoder, batch);
    let segment_ids = [[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 1, 2]].concat();
    assert_eq!(ints(&tgb, 0, "segment_ids"), segment_ids);
    // Documents 0 and 2 in the first row, 1 and 4 in the second, 3 alone in the third.
    assert_eq!(ints(&tgb, 0, "segments.offsets"), [0, 2, 4]);
    assert_eq!(ints(&tgb, 0, "image.offsets"), [0, 1, 3, 3, 4]);
    let one = 0x0101;
    let three = 0x0303;
    let five = 0x0505;
    assert_eq!(
        ints(&tgb, 0, "image"),
        [one, one, three, three, three, three, five, five]
    );
    assert_eq!(ints(&tgb, 1, "segments.offsets"), [0, 1, 1]);
    assert_eq!(ints(&tgb, 1, "image.offsets"), [0, 1]);
    let layout = Layout::parse(&tgb[0]).unwrap();
    assert_eq!(layout.array("image").unwrap().shape, [4, 2]);
    let frames: usize = tgb.iter().map(|s| s.len() + 64).sum();
    assert!(encoder.frame_bytes(batch, 2) >= frames as u64 && frames > 300);
    assert!(batch.memory() > 20);
}

#[test]
fn samples_of_any_length_lie_one_after_another() {
    let shape = Shape {
        slices: 2,
        rows_per_slice: 2,
        seq_len: 1,
    };
    let spec = |name: &str, dtype, shape: &[u64]| ArraySpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        from: String::new(),
        base64: false,
        image: None,
        path: false,
        shortest: None,
    };
    let specs = vec![
        spec("image", Dtype::U8, &[2]),
        spec("action", Dtype::U16, &[]),
    ];
    let samples = [(4, 0), (0, 2), (2, 4)]
        .map(|(a, b)| vec![vec![a as u8; a].into(), vec![b as u8; b].into()]);
    let batch = PackedBatch {
        sources: Sources::default(),
        content: BatchContent::Samples(samples.to_vec()),
        own: 3,
        next: Restart::default(),
    };
    let encoder = Encoder::samples(shape, specs).unwrap();
    let tgb = encoded(&encoder, &batch);
    assert_eq!(ints(&tgb, 0, "image"), [4, 4, 4, 4]);
    assert_eq!(ints(&tgb, 0, "image.offsets"), [0, 2, 2]);
    assert_eq!(ints(&tgb, 0, "action"), [0x0202]);
    assert_eq!(ints(&tgb, 0, "action.offsets"), [0, 0, 1]);
    assert_eq!(ints(&tgb, 1, "image.offsets"), [0, 1]);
    assert_eq!(ints(&tgb, 1, "action"), [0x0404, 0x0404]);
    let layout = Layout::parse(&tgb[0]).unwrap();
    assert_eq!(layout.array("image").unwrap().shape, [2, 2]);
    assert_eq!(encoder.rows_of(&batch, 2), 3);
    let frames: usize = tgb.iter().map(|s| s.len() + 64).sum();
    assert!(encoder.frame_bytes(&batch, 2) >= frames as u64 && frames > 300);
}
