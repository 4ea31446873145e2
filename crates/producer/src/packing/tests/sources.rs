//! What batches say they were made from, held against the documents.

use proptest::prelude::*;

use super::*;

/// Puts each row together again from its documents, and fills it up.
fn rebuilt(batch: &Batch, documents: &[Document], shape: Shape) -> Vec<Vec<u32>> {
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

fn stored(batch: &Batch, shape: Shape) -> Vec<Vec<u32>> {
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
        content: Content::Sample(vec![vec![7]]),
    };
    let packer = Box::new(Samples::new(shape, Point::default()));
    let (batches, _) = pack(packer, &[sample(4), sample(6), sample(7)], Point::default());
    let units = |batch: &Batch| -> Vec<(u64, u64)> {
        let pieces = batch.sources.pieces.iter();
        pieces.map(|piece| (piece.pass, piece.unit)).collect()
    };
    assert_eq!(units(&batches[0]), [(1, 4), (1, 6)]);
    assert_eq!(units(&batches[1]), [(1, 7)]);
}
