//! The provenance of batches, compared with the documents.

use proptest::prelude::*;

use super::*;

/// Returns each row, made again from its documents and filled up.
fn rebuilt(batch: &PackedBatch, documents: &[Document], shape: Shape) -> Vec<Vec<u32>> {
    let mut rows = vec![Vec::new(); shape.rows()];
    for (row, at, piece) in batch
        .sources
        .placed(u64::from(shape.seq_len), shape.rows() as u64)
    {
        let row = &mut rows[row as usize];
        assert_eq!(row.len() as u64, at, "pieces lie side by side");
        let Content::Tokens(mut tokens) = documents[piece.unit as usize].content.clone() else {
            panic!("no tokens")
        };
        tokens.push(END);
        row.extend_from_slice(&tokens[piece.skip as usize..][..piece.items as usize]);
    }
    for row in &mut rows {
        row.resize(shape.width(), PAD);
    }
    rows
}

fn stored(batch: &PackedBatch, shape: Shape) -> Vec<Vec<u32>> {
    let rows = rows(batch);
    let row = |n: usize| rows.tokens[n * rows.stride..][..shape.width()].to_vec();
    (0..shape.rows()).map(row).collect()
}

proptest! {
    #[test]
    fn rows_can_be_made_again_from_what_they_say_they_are_from(
        lengths in prop::collection::vec(0usize..23, 1..60),
        slices in 1u32..3, rows_per_slice in 1u32..3, seq_len in 1u32..12, look_ahead in 1usize..20,
    ) {
        let shape = Shape { slices, rows_per_slice, seq_len };
        let documents = documents(&lengths);
        for packer in [concat(shape, Restart::default()), best_fit(shape, look_ahead, Restart::default())] {
            let (all, _) = pack(packer, &documents, Point::default());
            for batch in &all {
                prop_assert_eq!(rebuilt(batch, &documents, shape), stored(batch, shape));
            }
        }
    }
}

#[test]
fn samples_are_named_one_by_one() {
    let shape = Shape {
        slices: 2,
        rows_per_slice: 1,
        seq_len: 1,
    };
    let sample = |unit| Document {
        pass: 1,
        place: place(unit),
        within: Within::default(),
        content: Content::Sample(vec![vec![7].into()]),
        columns: None,
        arrays: Vec::new(),
    };
    let packer = Box::new(Samples::new(shape, Point::default()));
    let (batches, _) = pack(packer, &[sample(4), sample(6), sample(7)], Point::default());
    let units = |batch: &PackedBatch| -> Vec<(u64, u64)> {
        let pieces = batch.sources.pieces.iter();
        pieces.map(|piece| (piece.pass, piece.unit)).collect()
    };
    assert_eq!(units(&batches[0]), [(1, 4), (1, 6)]);
    assert_eq!(units(&batches[1]), [(1, 7)]);
}

/// Returns typical lengths of documents: most short, a few very long (log-normal, median 300 tokens).
fn realistic(documents: usize) -> Vec<usize> {
    let mut state = 17_u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut length = || {
        let u = uniform().max(1e-12);
        let v = uniform();
        let normal = (-2. * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (300. * (1.2 * normal).exp()) as usize
    };
    (0..documents).map(|_| length().clamp(1, 100_000)).collect()
}

#[test]
fn provenance_takes_at_most_two_hundredths_of_the_data() {
    let shape = Shape {
        slices: 4,
        rows_per_slice: 4,
        seq_len: 2048,
    };
    let documents = documents(&realistic(4000));
    for (mode, packer) in [
        ("concat", concat(shape, Restart::default())),
        ("best_fit", best_fit(shape, 512, Restart::default())),
    ] {
        let (all, full) = pack(packer, &documents, Point::default());
        let encoder = Encoder::rows(shape, 1 << 16, &Beside::default()).unwrap();
        let data: u64 = all
            .iter()
            .map(|b| encoder.frame_bytes(b, shape.slices))
            .sum();
        // One object per batch, the largest possible number.
        let sources = all.iter().map(|batch| {
            let hash = batchweave_core::ids::Hash::sha256(b"");
            let blocks = [batch.sources.encode()];
            batchweave_core::provenance::Provenance::of_blocks(hash, 0, &blocks).len() as u64
        });
        let share = sources.sum::<u64>() as f64 / data as f64;
        eprintln!("{mode}: {} batches, {:.2} %", all.len(), 100. * share);
        assert!(full > 20 && share <= 0.02, "{mode}: {share}");
    }
}
